/* Element types: one list, everything else is a projection of it. */
#ifndef MOTLEY_IR_DTYPE_H
#define MOTLEY_IR_DTYPE_H

#include "support/arena.h"

#include <stdbool.h>
#include <stdint.h>

/* X(id, text name, bytes, ONNX data_type, class) */
#define MOT_DTYPE_LIST(X)                                                                          \
    X(F32, f32, 4, 1, FLOAT)                                                                       \
    X(F64, f64, 8, 11, FLOAT)                                                                      \
    X(F16, f16, 2, 10, FLOAT)                                                                      \
    X(BF16, bf16, 2, 16, FLOAT)                                                                    \
    X(U8, u8, 1, 2, INT)                                                                           \
    X(I32, i32, 4, 6, INT)                                                                         \
    X(I64, i64, 8, 7, INT)                                                                         \
    X(BOOL, bool, 1, 9, BOOL)

typedef enum MotDtype {
    MOT_NO_DTYPE,
#define X(id, name, bytes, onnx, class) MOT_##id,
    MOT_DTYPE_LIST(X)
#undef X
        MOT_N_DTYPES
} MotDtype;

typedef enum MotDtypeClass {
    MOT_CLASS_FLOAT = 1,
    MOT_CLASS_INT = 2,
    MOT_CLASS_BOOL = 4
} MotDtypeClass;

int mot_dtype_bytes(MotDtype dtype);
const char *mot_dtype_name(MotDtype dtype);
MotDtypeClass mot_dtype_class(MotDtype dtype);
/* MOT_NO_DTYPE if there is none of that name, or of that ONNX number. */
MotDtype mot_dtype_find(const char *name);
MotDtype mot_dtype_from_onnx(int64_t data_type);
int mot_dtype_to_onnx(MotDtype dtype);

enum { MOT_MAX_RANK = 8, MOT_MAX_OPERANDS = 64, MOT_MAX_RESULTS = 4 };

/*
 * A tensor type. A dim >= 0 is a size; a dim < 0 names the graph's symbolic dim -dim - 1 (kernels
 * of a Program whose sizes follow the shares; nowhere else).
 */
typedef struct MotType {
    MotDtype dtype;
    int rank;
    int64_t dims[MOT_MAX_RANK];
} MotType;

MotType mot_type_make(MotDtype dtype, int rank, const int64_t *dims);
MotType mot_type_scalar(MotDtype dtype);
bool mot_type_equal(const MotType *a, const MotType *b);
bool mot_dims_equal(const MotType *a, const MotType *b);
/*
 * Whether the sizes among the dims, zeros counted as ones, multiply to less than 2^62: no product
 * of some of them overflows.
 */
bool mot_type_fits(const MotType *type);
/* Product of the dims (which must all be sizes). Types are verified to stay below 2^62 elements. */
int64_t mot_type_elements(const MotType *type);
int64_t mot_type_bytes(const MotType *type);

/* A host tensor: dense, row-major, little-endian. The data is borrowed. */
typedef struct MotTensor {
    MotType type;
    void *data;
} MotTensor;

/*
 * Element i as a double or an int64 whatever the dtype (bool: 0 or 1), and the way back: to floats
 * rounded to nearest, ties to even; a double to integers toward zero, at the ends of their range
 * beyond it, and NaN as 0.
 */
double mot_tensor_get(const MotTensor *tensor, int64_t i);
int64_t mot_tensor_get_int(const MotTensor *tensor, int64_t i);
void mot_tensor_set(const MotTensor *tensor, int64_t i, double value);
void mot_tensor_set_int(const MotTensor *tensor, int64_t i, int64_t value);
/* What is left of x in that dtype. */
double mot_dtype_round(MotDtype dtype, double x);
/*
 * A copy in another dtype, in the arena: integers to integers exactly, anything else through
 * double.
 */
MotTensor mot_tensor_cast(MotArena *arena, const MotTensor *tensor, MotDtype dtype);

#endif
