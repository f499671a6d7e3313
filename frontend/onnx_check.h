/*
 * What must hold in every ONNX model whatever its operators mean. Runs once, when a file is opened;
 * finds the scopes and the orders of their nodes (onnx_scope.h). The first fault ends it.
 *
 * Cost: linear in the model, times the depth of nested graphs for names. Does not recurse.
 */
#ifndef MOTLEY_FRONTEND_ONNX_CHECK_H
#define MOTLEY_FRONTEND_ONNX_CHECK_H

#include "frontend/onnx_scope.h"

enum { MOT_ONNX_IR_KNOWN = 14, MOT_ONNX_OPSET_KNOWN = 28 };

MOT_CHECKED MotStatus mot_onnx_check(MotCtx *ctx, MotOnnxFile *file);

/* Its parts, a file each. */

/*
 * Attributes of nodes and the tensors in them; bodies of If, Loop and Scan against their node
 * (onnx_attribute.c).
 */
MOT_CHECKED MotStatus mot_onnx_check_attributes(MotCtx *ctx, const MotOnnxFile *file);
/*
 * Names are defined once and before use, possibly after sorting, which sets the orders
 * (onnx_names.c).
 */
MOT_CHECKED MotStatus mot_onnx_check_names(MotCtx *ctx, const MotOnnxFile *file);
/*
 * Functions are distinct, do not call themselves, and expand to a bounded number of nodes
 * (onnx_function.c).
 */
MOT_CHECKED MotStatus mot_onnx_check_functions(MotCtx *ctx, const MotOnnxFile *file);
/* Device configurations and what nodes say of them (onnx_device.c). */
MOT_CHECKED MotStatus mot_onnx_check_devices(MotCtx *ctx, const MotOnnxFile *file);

/* "" for ai.onnx in all its spellings. */
const char *mot_onnx_domain(const char *domain);

#endif
