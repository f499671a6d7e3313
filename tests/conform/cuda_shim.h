/*
 * CUDA C as host C++: what the generated text (codegen/cuda.h) finds of CUDA. Included before it;
 * the threads behind it are cuda_shim.cpp's. Numbers of lines name barriers.
 */
#ifndef MOTLEY_TESTS_CONFORM_CUDA_SHIM_H
#define MOTLEY_TESTS_CONFORM_CUDA_SHIM_H

#include <cmath>
#include <cstring>

using std::ceil;
using std::cos;
using std::erf;
using std::exp;
using std::floor;
using std::log;
using std::log1p;
using std::pow;
using std::sin;
using std::sqrt;
using std::tanh;

struct MotShimIndex {
    unsigned x, y;
};
extern MotShimIndex threadIdx, blockIdx, gridDim;
void mot_shim_barrier(int line);

static inline float __int_as_float(int bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline int __float_as_int(float value)
{
    int bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

#define __global__
#define __device__ static inline
#define __shared__ static
#define __launch_bounds__(threads)
/* Every barrier that is compiled stands in the section's list. */
#define __syncthreads()                                                                            \
    do {                                                                                           \
        asm(".pushsection mot_barriers, \"a\"\n.long %c0\n.popsection" ::"i"(__LINE__));           \
        mot_shim_barrier(__LINE__);                                                                \
    } while (0)

#endif
