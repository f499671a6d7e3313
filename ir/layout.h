/*
 * A parameter's value and the tensor in its file: the same elements, dims split into atoms and
 * permuted (attrs.def, param).
 */
#ifndef MOTLEY_IR_LAYOUT_H
#define MOTLEY_IR_LAYOUT_H

#include "ir/graph.h"

/*
 * `type` is that of the value, all dims known. The shape in the file; the value's own for a
 * parameter that no pass has touched.
 */
MotType mot_param_file_type(const MotType *type, const MotOp *param);
/* out_stride[i]: how far apart neighbours along dim i of the value are in the file, in elements. */
void mot_param_strides(const MotType *type, const MotOp *param, int64_t *out_stride);
/* Copies a dense tensor in the value's layout to one in the file's. */
void mot_param_to_file(const MotType *type, const MotOp *param, const void *value, void *out_file);

/*
 * The tensor of the second initializer that a tied parameter holds as well (param.tied), from the
 * first one's: the same, or transposed. NULL data when the parameter is not tied.
 */
MotTensor mot_param_tied(MotArena *arena, const MotOp *param, const MotTensor *file);

#endif
