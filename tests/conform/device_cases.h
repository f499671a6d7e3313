/*
 * The cases of the conformance suite: kernels as text, in a table by what they exercise. Inputs are
 * filled by their names: x* and g* normal, p* in [0.1, 3), m* normal or -inf, z* zeros, i<N>*
 * integers below N, n* integers from -50 to 50, lr 0.01, step 3, a<K>* rows of K ascending integers
 * below 6 K, w_WIRE* messages of 3 of 20 such entries. A case with symbols runs under two bindings
 * of them with one image.
 */
#ifndef MOTLEY_TESTS_CONFORM_DEVICE_CASES_H
#define MOTLEY_TESTS_CONFORM_DEVICE_CASES_H

#include "ir/dtype.h"

#include <stdbool.h>
#include <stdint.h>

enum { MAX_SYMBOLS = 2, N_BINDINGS = 2 };

typedef struct Case {
    const char *name;
    const char *symbols; /* "" or " {symbols=[@a, @b]}" */
    int64_t sizes[N_BINDINGS][MAX_SYMBOLS];
    const char *body;
} Case;

/* %x : type, by its name. */
#define IN(name, type) "%" name " = input {name=\"" name "\"} : " type "\n"
#define OUT(name) "output %" name " {name=\"" name "\"}\n"
/* One op on two operands with an output. */
#define UNARY(op, x, type)                                                                         \
    {op " " type, "", {{0}}, IN(x, type) "%y = " op " %" x " : " type "\n" OUT("y")}
#define BINARY(op, x, tx, z, tz, ty)                                                               \
    {op " " tx " " tz,                                                                             \
     "",                                                                                           \
     {{0}},                                                                                        \
     IN(x, tx) IN(z, tz) "%y = " op " %" x " %" z " : " ty "\n" OUT("y")}
#define ONE_SYMBOL(first, second)                                                                  \
    " {symbols=[@a]}",                                                                             \
    {                                                                                              \
        {first},                                                                                   \
        {                                                                                          \
            second                                                                                 \
        }                                                                                          \
    }
#define TWO_SYMBOLS(a1, b1, a2, b2)                                                                \
    " {symbols=[@a, @b]}",                                                                         \
    {                                                                                              \
        {a1, b1},                                                                                  \
        {                                                                                          \
            a2, b2                                                                                 \
        }                                                                                          \
    }
#define CONTRACT(spec, tx, tz, ty)                                                                 \
    {"contract " spec " " tx " " tz,                                                               \
     "",                                                                                           \
     {{0}},                                                                                        \
     IN("x", tx) IN("xz", tz) "%y = contract %x %xz {spec=\"" spec "\"} : " ty "\n" OUT("y")}
/* The letter `cut`, of size `k`, runs over a list of n positions, some of which occur twice. */
#define LISTED(spec, cut, tx, tz, k, n, ty)                                                        \
    {"contract listed " spec " " tx " " tz " " n,                                                  \
     "",                                                                                           \
     {{0}},                                                                                        \
     IN("x", tx) IN("xz", tz) IN("i" k, "i64[" n "]") "%y = contract %x %xz %i" k " {spec=\"" spec \
                                                      "\", cut=\"" cut "\"} : " ty "\n" OUT("y")}
#define ATTENTION(name, sym, tq, tk, tv, to, tl, attrs, mask_in, mask)                             \
    {"attention " name, sym,                                                                       \
     IN("xq", tq) IN("xk", tk) IN("xv", tv) mask_in                                                \
     "%o, %l = attention %xq %xk %xv" mask " {" attrs "} : " to ", " tl "\n" OUT("o") OUT("l")}
/*
 * out and lse are what attention gives: both ops are in the graph of the reference, lse and out are
 * operands of the kernel.
 */
#define ATTENTION_GRAD(name, sym, tq, tk, tv, to, tl, attrs, mask_in, mask)                        \
    {"attention_grad " name, sym,                                                                  \
     IN("xq", tq) IN("xk", tk) IN("xv", tv) IN("o", to) IN("l", tl) IN("g", to) mask_in            \
     "%dq, %dk, %dv = attention_grad %xq %xk %xv %o %l %g" mask " {" attrs "} : " tq ", " tk       \
     ", " tv "\n" OUT("dq") OUT("dk") OUT("dv")}
#define NO_SYMBOLS                                                                                 \
    "",                                                                                            \
    {{0}}
#define ADAM(attrs, type)                                                                          \
    {"adam " attrs, ONE_SYMBOL(1000, 0),                                                           \
     IN("x", type) IN("xm", type) IN("pv", type) IN("g", type) IN("lr", "f32")                     \
         IN("step", "f32") "%p, %m, %v = adam %x %xm %pv %g %lr %step {beta1=0.9, beta2=0.95, "    \
                           "eps=1e-08, " attrs "} : " type ", " type ", " type "\n" OUT("p")       \
                               OUT("m") OUT("v")}

/* Entries of rows of 20 into messages, and out of them what went in. */
#define MESSAGE(wire, size, bytes)                                                                 \
    {"pack " wire, ONE_SYMBOL(5, 0),                                                               \
     IN("a3", "i32[4x@ax3]") IN("x", "f32[4x@ax3]") "%m = pack %a3 %x {size=" size                 \
                                                    ", k=3, wire=\"" wire "\"} : u8[4x@ax" bytes   \
                                                    "]\n" OUT("m")},                               \
    {                                                                                              \
        "unpack " wire, ONE_SYMBOL(5, 0),                                                          \
            IN("w_" wire, "u8[4x@ax" bytes "]") "%i, %v = unpack %w_" wire " {size=" size          \
                                                ", k=3, wire=\"" wire                              \
                                                "\"} : i32[4x@ax3], f32[4x@ax3]\n" OUT("i")        \
                                                    OUT("v")                                       \
    }

/* A row of the op table on operands of one type. */
#define FLOAT MOT_CLASS_FLOAT
#define INT MOT_CLASS_INT
#define BOOL MOT_CLASS_BOOL
#define ROW_SAME(type) type
#define ROW_BOOL(type) "bool"
#define ROW_1(op, x, z, type, to)                                                                  \
    IN(x, type "[1001]") "%y = " op " %" x " : " to "[1001]\n" OUT("y")
#define ROW_2(op, x, z, type, to)                                                                  \
    IN(x, type "[1001]")                                                                           \
    IN(z, type "[1001]") "%y = " op " %" x " %" z " : " to "[1001]\n" OUT("y")
#define ROW_3(op, x, z, type, to)                                                                  \
    IN("i2", "bool[1001]")                                                                         \
    IN(x, type "[1001]")                                                                           \
    IN(z, type "[1001]") "%y = " op " %i2 %" x " %" z " : " to "[1001]\n" OUT("y")

static const Case cases[] = {
/* ---- Pointwise: every row in its first class; tails, zero sizes, broadcasting, integers ---- */
#define POINTWISE(id, name, arity, classes, result, expression)                                    \
    {"row " #name, NO_SYMBOLS,                                                                     \
     (classes) & FLOAT ? ROW_##arity(#name, "x", "xz", "f32", ROW_##result("f32"))                 \
     : (classes) & INT ? ROW_##arity(#name, "n", "i9d", "i64", ROW_##result("i64"))                \
                       : ROW_##arity(#name, "i2", "i2b", "bool", "bool")},
#include "ir/ops.def"
#undef FLOAT
#undef INT
#undef BOOL
    UNARY("log", "p", "f32[1001]"),
    UNARY("sqrt", "p", "f32[1001]"),
    UNARY("rsqrt", "p", "f32[1001]"),
    UNARY("neg", "n", "i64[37]"),
    UNARY("abs", "x", "f32[3x21]"),
    UNARY("abs", "n", "i32[21]"),
    UNARY("sign", "n", "i64[100]"),
    UNARY("relu", "x", "f32[0x7]"),
    UNARY("exp", "x", "f32"),
    BINARY("add", "x", "f32[5x33]", "xz", "f32[5x33]", "f32[5x33]"),
    BINARY("add", "x", "f32[5x33]", "xz", "f32[33]", "f32[5x33]"),
    BINARY("add", "x", "f32[5x1]", "xz", "f32[33]", "f32[5x33]"),
    BINARY("add", "x", "f32[4x1x6x1]", "xz", "f32[3x1x5]", "f32[4x3x6x5]"),
    BINARY("add", "n", "i64[40]", "n2", "i64", "i64[40]"),
    BINARY("add", "x", "f32[3x0x8]", "xz", "f32[3x1x8]", "f32[3x0x8]"),
    BINARY("sub", "x", "f32[2x17]", "xz", "f32", "f32[2x17]"),
    BINARY("sub", "n", "i32[19]", "n2", "i32[19]", "i32[19]"),
    BINARY("mul", "x", "f32[70]", "xz", "f32[70]", "f32[70]"),
    BINARY("mul", "n", "i64[70]", "n2", "i64[70]", "i64[70]"),
    BINARY("div", "x", "f32[70]", "p", "f32[70]", "f32[70]"),
    BINARY("div", "n", "i64[70]", "i9d", "i64[70]", "i64[70]"),
    BINARY("div", "n", "i32[70]", "i9d", "i32", "i32[70]"),
    BINARY("pow", "p", "f32[70]", "x", "f32[70]", "f32[70]"),
    BINARY("mod", "n", "i64[70]", "i9d", "i64[70]", "i64[70]"),
    BINARY("max", "x", "f32[70]", "xz", "f32[70]", "f32[70]"),
    BINARY("max", "n", "i32[70]", "n2", "i32[70]", "i32[70]"),
    BINARY("min", "x", "f32[70]", "xz", "f32[70]", "f32[70]"),
    BINARY("min", "n", "i64[70]", "n2", "i64[70]", "i64[70]"),
    BINARY("eq", "i5", "i64[70]", "i5b", "i64[70]", "bool[70]"),
    BINARY("eq", "i2", "bool[70]", "i2b", "bool[70]", "bool[70]"),
    BINARY("lt", "x", "f32[70]", "xz", "f32[70]", "bool[70]"),
    BINARY("le", "n", "i32[70]", "n2", "i32[70]", "bool[70]"),
    BINARY("and", "i2", "bool[70]", "i2b", "bool[70]", "bool[70]"),
    BINARY("or", "i2", "bool[70]", "i2b", "bool[70]", "bool[70]"),
    BINARY("xor", "i2", "bool[70]", "i2b", "bool[70]", "bool[70]"),
    {"select", NO_SYMBOLS,
     IN("i2", "bool[6x1]") IN("x", "f32[6x9]")
         IN("xz", "f32[9]") "%y = select %i2 %x %xz : f32[6x9]\n" OUT("y")},
    {"a fused group, symbolic", TWO_SYMBOLS(5, 3, 1, 0),
     IN("x", "f32[@ax@bx24]") IN("xb", "f32[@bx24]") IN(
         "xr",
         "f32[@ax@bx24]") "%c = constant {data=0.5} : f32\n%1 = add %x %xb : f32[@ax@bx24]\n%2 = "
                          "mul %1 %c : f32[@ax@bx24]\n"
                          "%3 = tanh %2 : f32[@ax@bx24]\n%4 = add %3 %xr : f32[@ax@bx24]\n" OUT("2")
                              OUT("4")},
    {"results of two shapes", NO_SYMBOLS,
     IN("x", "f32[4x20]") IN(
         "xb", "f32[20]") "%1 = exp %xb : f32[20]\n%2 = mul %x %1 : f32[4x20]\n" OUT("1") OUT("2")},
    {"gelu", ONE_SYMBOL(7, 300), IN("x", "f32[@ax64]") "%y = gelu %x : f32[@ax64]\n" OUT("y")},
    {"gelu tanh", NO_SYMBOLS, IN("x", "f32[77]") "%y = gelu %x {tanh} : f32[77]\n" OUT("y")},
    {"gelu_grad", ONE_SYMBOL(7, 300),
     IN("x", "f32[@ax64]") IN("g", "f32[@ax64]") "%y = gelu_grad %x %g : f32[@ax64]\n" OUT("y")},
    {"gelu_grad tanh", NO_SYMBOLS,
     IN("x", "f32[77]") IN("g", "f32[77]") "%y = gelu_grad %x %g {tanh} : f32[77]\n" OUT("y")},
    {"sgd", NO_SYMBOLS,
     IN("x", "f32[9x11]") IN("g", "f32[9x11]")
         IN("lr", "f32") "%y = sgd %x %g %lr {wd=0.1} : f32[9x11]\n" OUT("y")},
    {"momentum", NO_SYMBOLS,
     IN("x", "f32[99]") IN("xm", "f32[99]") IN("g", "f32[99]")
         IN("lr", "f32") "%p, %m = momentum %x %xm %g %lr {momentum=0.9, wd=0.01} : f32[99], "
                         "f32[99]\n" OUT("p") OUT("m")},
    ADAM("wd=0.1, decoupled", "f32[@ax7]"),
    ADAM("wd=0.1", "f32[@ax7]"),
    ADAM("wd=0.0", "f32[@a]"),

    /* ---- Copies: every one is an access map ---- */
    {"iota", NO_SYMBOLS, "%y = iota {dims=[3, 37], axis=1, dtype=i64} : i64[3x37]\n" OUT("y")},
    {"iota f32, outer", NO_SYMBOLS,
     "%y = iota {dims=[3, 37], axis=0, dtype=f32} : f32[3x37]\n" OUT("y")},
    {"cast i64 f32", NO_SYMBOLS,
     IN("n", "i64[33]") "%y = cast %n {dtype=f32} : f32[33]\n" OUT("y")},
    {"cast f32 i32", NO_SYMBOLS,
     IN("x", "f32[33]") "%y = cast %x {dtype=i32} : i32[33]\n" OUT("y")},
    {"cast bool f32", NO_SYMBOLS,
     IN("i2", "bool[33]") "%y = cast %i2 {dtype=f32} : f32[33]\n" OUT("y")},
    {"cast f32 bool", NO_SYMBOLS,
     IN("i2", "f32[33]") "%y = cast %i2 {dtype=bool} : bool[33]\n" OUT("y")},
    {"cast i64 i32", NO_SYMBOLS,
     IN("n", "i64[33]") "%y = cast %n {dtype=i32} : i32[33]\n" OUT("y")},
    {"reshape", ONE_SYMBOL(6, 0),
     IN("x", "f32[@ax4x6]") "%y = reshape %x {dims=[-1, 24]} : f32[@ax24]\n" OUT("y")},
    {"reshape, then add", NO_SYMBOLS,
     IN("x", "f32[6x4]") IN("xb", "f32[8]") "%1 = reshape %x {dims=[3, 8]} : f32[3x8]\n%y = add %1 "
                                            "%xb : f32[3x8]\n" OUT("y")},
    {"add, then reshape", NO_SYMBOLS,
     IN("x", "f32[6x4]") IN("xb", "f32[4]") "%1 = add %x %xb : f32[6x4]\n%y = reshape %1 {dims=[3, "
                                            "8]} : f32[3x8]\n" OUT("y")},
    {"transpose", ONE_SYMBOL(5, 40),
     IN("x", "f32[3x@ax7]") "%y = transpose %x {perm=[2, 0, 1]} : f32[7x3x@a]\n" OUT("y")},
    {"transpose heads", NO_SYMBOLS,
     IN("x", "f32[2x5x3x20]") "%y = transpose %x {perm=[0, 2, 1, 3]} : f32[2x3x5x20]\n" OUT("y")},
    {"transpose bool", NO_SYMBOLS,
     IN("i2", "bool[5x9]") "%y = transpose %i2 {perm=[1, 0]} : bool[9x5]\n" OUT("y")},
    {"broadcast", ONE_SYMBOL(5, 40),
     IN("x", "f32[3x1]") "%y = broadcast %x {dims=[-1, 3, 9]} : f32[@ax3x9]\n" OUT("y")},
    {"slice", NO_SYMBOLS,
     IN("x", "f32[5x40]") "%y = slice %x {start=[1, 2], size=[3, 17], step=[1, 2]} : "
                          "f32[3x17]\n" OUT("y")},
    {"slice backwards", NO_SYMBOLS,
     IN("x", "f32[5x40]") "%y = slice %x {start=[4, 39], size=[5, 40], step=[-1, -1]} : "
                          "f32[5x40]\n" OUT("y")},
    {"slice, symbolic", ONE_SYMBOL(5, 2),
     IN("x", "f32[@ax40]") "%y = slice %x {start=[0, 20], size=[-1, 20], step=[1, 1]} : "
                           "f32[@ax20]\n" OUT("y")},
    {"pad", NO_SYMBOLS,
     IN("x", "f32[5x40]") "%y = pad %x {lo=[1, 0], hi=[0, 3], value=1.5} : f32[6x43]\n" OUT("y")},
    {"pad, symbolic", ONE_SYMBOL(5, 0),
     IN("x", "f32[@ax40]") "%y = pad %x {lo=[0, 2], hi=[0, 3]} : f32[@ax45]\n" OUT("y")},
    {"a reduction stored along its own loop", NO_SYMBOLS,
     IN("x", "f32[6x40]") "%1 = reduce_sum %x {axes=[1], keep} : f32[6x1]\n"
                          "%y = broadcast %1 {dims=[6, 40]} : f32[6x40]\n" OUT("y")},
    {"pads added up: parts put into one", ONE_SYMBOL(2, 1),
     IN("x", "f32[@ax5x3x8]") IN("x2", "f32[@ax5x3x8]") IN(
         "x3",
         "f32[@ax5x3x8]") "%1 = reshape %x {dims=[-1, 5, 1, 3, 8]} : f32[@ax5x1x3x8]\n%2 = reshape "
                          "%x2 {dims=[-1, 5, 1, 3, 8]} : f32[@ax5x1x3x8]\n"
                          "%3 = reshape %x3 {dims=[-1, 5, 1, 3, 8]} : f32[@ax5x1x3x8]\n"
                          "%4 = pad %1 {lo=[0, 0, 0, 0, 0], hi=[0, 0, 2, 0, 0]} : f32[@ax5x3x3x8]\n"
                          "%5 = pad %2 {lo=[0, 0, 1, 0, 0], hi=[0, 0, 1, 0, 0]} : f32[@ax5x3x3x8]\n"
                          "%6 = pad %3 {lo=[0, 0, 2, 0, 0], hi=[0, 0, 0, 0, 0]} : f32[@ax5x3x3x8]\n"
                          "%7 = add %4 %5 : f32[@ax5x3x3x8]\n%y = add %7 %6 : "
                          "f32[@ax5x3x3x8]\n" OUT("y")},
    {"concat", NO_SYMBOLS,
     IN("x", "f32[5x40]") IN("x2", "f32[5x3]")
         IN("x3", "f32[5x17]") "%y = concat %x %x2 %x3 {axis=1} : f32[5x60]\n" OUT("y")},
    {"concat outer", ONE_SYMBOL(9, 16),
     IN("x", "f32[5x@a]")
         IN("x2", "f32[3x@a]") "%y = concat %x %x2 {axis=0} : f32[8x@a]\n" OUT("y")},
    {"gather rows", ONE_SYMBOL(4, 0),
     IN("x", "f32[65x40]")
         IN("i65", "i64[@ax8]") "%y = gather %x %i65 {axis=0} : f32[@ax8x40]\n" OUT("y")},
    {"gather scalars", NO_SYMBOLS,
     IN("x", "f32[65]") IN("i65", "i32[45]") "%y = gather %x %i65 {axis=0} : f32[45]\n" OUT("y")},
    {"gather inner", NO_SYMBOLS,
     IN("x", "f32[4x65x3]")
         IN("i65", "i64[5]") "%y = gather %x %i65 {axis=1} : f32[4x5x3]\n" OUT("y")},
    {"gather batched", ONE_SYMBOL(3, 0),
     IN("x", "f32[@ax9x70]")
         IN("i9", "i64[@ax20]") "%y = gather %x %i9 {axis=1, batched} : f32[@ax20x70]\n" OUT("y")},
    {"gather, then add", NO_SYMBOLS,
     IN("x", "f32[65x40]") IN("i65", "i64[3x8]")
         IN("xb", "f32[8x40]") "%1 = gather %x %i65 {axis=0} : f32[3x8x40]\n%y = add %1 %xb : "
                               "f32[3x8x40]\n" OUT("y")},
    {"gather rows without elements", NO_SYMBOLS,
     IN("x", "f32[65x0]") IN("i65", "i64[8]") "%y = gather %x %i65 {axis=0} : f32[8x0]\n" OUT("y")},
    {"gather inner without elements", NO_SYMBOLS,
     IN("x", "f32[4x65x0]")
         IN("i65", "i64[5]") "%y = gather %x %i65 {axis=1} : f32[4x5x0]\n" OUT("y")},
    {"gather nothing", NO_SYMBOLS,
     IN("x", "f32[65x40]")
         IN("i65", "i64[0]") "%y = gather %x %i65 {axis=0} : f32[0x40]\n" OUT("y")},
    {"gather nothing of nothing", NO_SYMBOLS,
     IN("x", "f32[0x40]")
         IN("i65", "i64[0]") "%y = gather %x %i65 {axis=0} : f32[0x40]\n" OUT("y")},
    {"gather no columns of the rows of a share", ONE_SYMBOL(4, 0),
     IN("x", "f32[65x0]")
         IN("i65", "i64[@ax8]") "%y = gather %x %i65 {axis=0} : f32[@ax8x0]\n" OUT("y")},
    {"scatter_add", ONE_SYMBOL(40, 7),
     IN("i9", "i64[@ax8]") IN(
         "x", "f32[@ax8x100]") "%y = scatter_add %i9 %x {axis=0, size=9} : f32[9x100]\n" OUT("y")},
    {"scatter_add inner", NO_SYMBOLS,
     IN("i9", "i32[20]") IN(
         "x", "f32[3x20x64]") "%y = scatter_add %i9 %x {axis=1, size=9} : f32[3x9x64]\n" OUT("y")},
    {"scatter_add scalars", NO_SYMBOLS,
     IN("i9", "i64[50]")
         IN("x", "f32[50]") "%y = scatter_add %i9 %x {axis=0, size=12} : f32[12]\n" OUT("y")},
    {"scatter_add batched", ONE_SYMBOL(3, 0),
     IN("i9", "i64[@ax20]") IN("x", "f32[@ax20x70]") "%y = scatter_add %i9 %x {axis=1, size=9, "
                                                     "batched} : f32[@ax9x70]\n" OUT("y")},
    {"top_k", ONE_SYMBOL(5, 0),
     IN("x", "f32[@ax3x70]") "%i, %v = top_k %x {k=9} : i32[@ax3x9], f32[@ax3x9]\n" OUT("i")
         OUT("v")},
    {"top_k of all", NO_SYMBOLS,
     IN("x", "f32[4x7]") "%i, %v = top_k %x {k=7} : i32[4x7], f32[4x7]\n" OUT("i") OUT("v")},
    {"top_k of equal numbers", NO_SYMBOLS,
     IN("i2", "f32[4x64]") "%i, %v = top_k %i2 {k=5} : i32[4x5], f32[4x5]\n" OUT("i") OUT("v")},
    {"scatter_mean", ONE_SYMBOL(5, 0),
     IN("a3", "i32[4x@ax3]") IN("x", "f32[4x@ax3]") "%y = scatter_mean %a3 %x {size=20} : "
                                                    "f32[@ax20]\n" OUT("y")},
    {"scatter_mean of one part", NO_SYMBOLS,
     IN("a3", "i32[1x6x3]")
         IN("x", "f32[1x6x3]") "%y = scatter_mean %a3 %x {size=20} : f32[6x20]\n" OUT("y")},
    MESSAGE("f32", "20", "14"),
    MESSAGE("bf16", "20", "8"),
    MESSAGE("int8", "20", "9"),
    MESSAGE("sign", "20", "3"),
    {"scatter_add rows without elements", NO_SYMBOLS,
     IN("i9", "i64[8]")
         IN("x", "f32[8x0]") "%y = scatter_add %i9 %x {axis=0, size=9} : f32[9x0]\n" OUT("y")},
    {"scatter_add nothing", NO_SYMBOLS,
     IN("i9", "i64[0]")
         IN("x", "f32[0x20]") "%y = scatter_add %i9 %x {axis=0, size=12} : f32[12x20]\n" OUT("y")},

    /* ---- Rows and columns ---- */
    {"reduce_sum rows", ONE_SYMBOL(3, 200),
     IN("x", "f32[@ax65]") "%y = reduce_sum %x {axes=[1]} : f32[@a]\n" OUT("y")},
    {"reduce_sum all", NO_SYMBOLS,
     IN("x", "f32[9x65]") "%y = reduce_sum %x {axes=[0, 1]} : f32\n" OUT("y")},
    {"reduce_sum columns", ONE_SYMBOL(3, 200),
     IN("x", "f32[@ax70]") "%y = reduce_sum %x {axes=[0]} : f32[70]\n" OUT("y")},
    {"reduce_sum columns of 128", ONE_SYMBOL(0, 200),
     IN("x", "f32[@ax128]") "%y = reduce_sum %x {axes=[0], keep} : f32[1x128]\n" OUT("y")},
    {"reduce_sum symbolic columns", ONE_SYMBOL(0, 100),
     IN("x", "f32[6x@a]") "%y = reduce_sum %x {axes=[0]} : f32[@a]\n" OUT("y")},
    {"reduce_sum middle", NO_SYMBOLS,
     IN("x", "f32[4x50x33]") "%y = reduce_sum %x {axes=[1]} : f32[4x33]\n" OUT("y")},
    {"reduce_sum outer and inner", NO_SYMBOLS,
     IN("x", "f32[4x50x33]") "%y = reduce_sum %x {axes=[0, 2], keep} : f32[1x50x1]\n" OUT("y")},
    {"reduce_sum outer and middle", NO_SYMBOLS,
     IN("x", "f32[4x3x5x33]") "%y = reduce_sum %x {axes=[0, 2]} : f32[3x33]\n" OUT("y")},
    {"reduce_sum of a long row", NO_SYMBOLS,
     IN("p", "f32[2x70001]") "%y = reduce_sum %p {axes=[1]} : f32[2]\n" OUT("y")},
    {"reduce_sum of long columns", NO_SYMBOLS,
     IN("p", "f32[30001x3]") "%y = reduce_sum %p {axes=[0]} : f32[3]\n" OUT("y")},
    {"softmax of a long row", ONE_SYMBOL(3001, 1024),
     IN("x", "f32[2x@a]") "%y = softmax %x {axis=1} : f32[2x@a]\n" OUT("y")},
    {"reduce_sum nothing", NO_SYMBOLS,
     IN("x", "f32[4x0]") "%y = reduce_sum %x {axes=[1]} : f32[4]\n" OUT("y")},
    {"reduce_sum i64", NO_SYMBOLS,
     IN("n", "i64[4x35]") "%y = reduce_sum %n {axes=[1]} : i64[4]\n" OUT("y")},
    {"reduce_sum of squares", NO_SYMBOLS,
     IN("x", "f32[40x35]") "%1 = mul %x %x : f32[40x35]\n%y = reduce_sum %1 {axes=[0, 1]} : "
                           "f32\n" OUT("y")},
    {"reduce_sum to columns of a product", NO_SYMBOLS,
     IN("x", "f32[40x35]") IN(
         "g", "f32[40x35]") "%1 = mul %x %g : f32[40x35]\n%y = reduce_sum %1 {axes=[0]} : "
                            "f32[35]\n%2 = reduce_sum %g {axes=[0]} : f32[35]\n" OUT("y") OUT("2")},
    {"reduce_max rows", NO_SYMBOLS,
     IN("x", "f32[7x65]") "%y = reduce_max %x {axes=[1], keep} : f32[7x1]\n" OUT("y")},
    {"reduce_max columns", NO_SYMBOLS,
     IN("x", "f32[7x65]") "%y = reduce_max %x {axes=[0]} : f32[65]\n" OUT("y")},
    {"reduce_max nothing", NO_SYMBOLS,
     IN("x", "f32[3x0]") "%y = reduce_max %x {axes=[1]} : f32[3]\n" OUT("y")},
    {"reduce_max i32", NO_SYMBOLS,
     IN("n", "i32[7x65]") "%y = reduce_max %n {axes=[1]} : i32[7]\n" OUT("y")},
    {"softmax", ONE_SYMBOL(5, 0),
     IN("x", "f32[@ax3x65]") "%y = softmax %x {axis=2} : f32[@ax3x65]\n" OUT("y")},
    {"softmax of whole vectors", NO_SYMBOLS,
     IN("x", "f32[5x64]") "%y = softmax %x {axis=1} : f32[5x64]\n" OUT("y")},
    {"softmax, symbolic row", ONE_SYMBOL(5, 100),
     IN("x", "f32[6x@a]") "%y = softmax %x {axis=1} : f32[6x@a]\n" OUT("y")},
    {"softmax columns", NO_SYMBOLS,
     IN("x", "f32[3x9x70]") "%y = softmax %x {axis=1} : f32[3x9x70]\n" OUT("y")},
    {"softmax_grad", NO_SYMBOLS,
     IN("x", "f32[3x65]")
         IN("g", "f32[3x65]") "%y = softmax_grad %x %g {axis=1} : f32[3x65]\n" OUT("y")},
    {"cross_entropy", ONE_SYMBOL(5, 2),
     IN("x", "f32[@ax4x65]")
         IN("i65", "i64[@ax4]") "%y = cross_entropy %x %i65 {ignore=3} : f32[@ax4]\n" OUT("y")},
    {"cross_entropy smoothed", NO_SYMBOLS,
     IN("x", "f32[9x17]") IN(
         "i17",
         "i32[9]") "%y = cross_entropy %x %i17 {ignore=-100, smoothing=0.1} : f32[9]\n" OUT("y")},
    {"cross_entropy_grad", ONE_SYMBOL(5, 2),
     IN("x", "f32[@ax4x65]") IN("i65", "i64[@ax4]")
         IN("g",
            "f32[@ax4]") "%y = cross_entropy_grad %x %i65 %g {ignore=3} : f32[@ax4x65]\n" OUT("y")},
    {"cross_entropy_grad smoothed", NO_SYMBOLS,
     IN("x", "f32[9x17]") IN("i17", "i64[9]")
         IN("g", "f32[9]") "%y = cross_entropy_grad %x %i17 %g {ignore=-100, smoothing=0.1} : "
                           "f32[9x17]\n" OUT("y")},
    {"cross_entropy and its gradient", ONE_SYMBOL(5, 2),
     IN("x", "f32[@ax4x65]") IN("i65", "i64[@ax4]")
         IN("g", "f32[@ax4]") "%y = cross_entropy %x %i65 {ignore=3} : f32[@ax4]\n"
                              "%dx = cross_entropy_grad %x %i65 %g {ignore=3} : f32[@ax4x65]\n" OUT(
                                  "y") OUT("dx")},
    {"cross_entropy and its gradient, one row of rows", NO_SYMBOLS,
     IN("x", "f32[1x4x65]") IN("i1", "i64[1x4]")
         IN("g", "f32[1x4]") "%y = cross_entropy %x %i1 {ignore=-100} : f32[1x4]\n"
                             "%dx = cross_entropy_grad %x %i1 %g {ignore=-100} : f32[1x4x65]\n" OUT(
                                 "y") OUT("dx")},
    {"cross_entropy and its gradient, square", NO_SYMBOLS,
     IN("x", "f32[4x4x4]") IN("i1", "i64[4x4]") IN(
         "g", "f32[4x4]") "%y = cross_entropy %x %i1 {ignore=-100} : f32[4x4]\n"
                          "%dx = cross_entropy_grad %x %i1 %g {ignore=-100} : f32[4x4x4]\n" OUT("y")
                              OUT("dx")},
    {"cross_entropy and its gradient, one class", NO_SYMBOLS,
     IN("x", "f32[2x3x1]") IN("i1", "i64[2x3]") IN(
         "g", "f32[2x3]") "%y = cross_entropy %x %i1 {ignore=-100} : f32[2x3]\n"
                          "%dx = cross_entropy_grad %x %i1 %g {ignore=-100} : f32[2x3x1]\n" OUT("y")
                              OUT("dx")},
    {"cross_entropy and its gradient, smoothed, long rows", NO_SYMBOLS,
     IN("x", "f32[9x5003]") IN("i17", "i32[9]")
         IN("g", "f32[9]") "%y = cross_entropy %x %i17 {ignore=-100, smoothing=0.1} : f32[9]\n"
                           "%dx = cross_entropy_grad %x %i17 %g {ignore=-100, smoothing=0.1} : "
                           "f32[9x5003]\n" OUT("y") OUT("dx")},
    {"layer_norm", ONE_SYMBOL(5, 0),
     IN("x", "f32[@ax3x40]") IN("xs", "f32[40]")
         IN("xb", "f32[40]") "%y, %m, %r = layer_norm %x %xs %xb {axis=2, eps=1e-05} : "
                             "f32[@ax3x40], f32[@ax3x1], f32[@ax3x1]\n" OUT("y") OUT("m") OUT("r")},
    {"layer_norm, no bias, two dims", NO_SYMBOLS,
     IN("x", "f32[5x6x7]")
         IN("xs", "f32[6x7]") "%y, %m, %r = layer_norm %x %xs {axis=1, eps=1e-05} : f32[5x6x7], "
                              "f32[5x1x1], f32[5x1x1]\n" OUT("y") OUT("m") OUT("r")},
    {"layer_norm_grad", ONE_SYMBOL(5, 1),
     IN("x", "f32[@ax3x40]") IN("xs", "f32[40]") IN("xm", "f32[@ax3x1]") IN("p", "f32[@ax3x1]")
         IN("g", "f32[@ax3x40]") "%dx, %ds, %db = layer_norm_grad %x %xs %xm %p %g {axis=2, "
                                 "eps=1e-05} : f32[@ax3x40], f32[40], f32[40]\n" OUT("dx") OUT("ds")
                                     OUT("db")},

    /* ---- Contractions: forms, strides, outer loops, sums without a GEMM ---- */
    CONTRACT("mk,kn->mn", "f32[5x7]", "f32[7x9]", "f32[5x9]"),
    CONTRACT("mk,kn->mn", "f32[100x33]", "f32[33x70]", "f32[100x70]"),
    CONTRACT("mk,nk->mn", "f32[100x33]", "f32[70x33]", "f32[100x70]"),
    CONTRACT("km,kn->mn", "f32[33x100]", "f32[33x70]", "f32[100x70]"),
    CONTRACT("km,nk->mn", "f32[33x100]", "f32[70x33]", "f32[100x70]"),
    CONTRACT("mk,kn->nm", "f32[5x7]", "f32[7x9]", "f32[9x5]"),
    CONTRACT("mk,kn->mn", "f32[5x0]", "f32[0x9]", "f32[5x9]"),
    CONTRACT("mk,kn->mn", "f32[0x4]", "f32[4x9]", "f32[0x9]"),
    CONTRACT("mk,kn->mn", "f32[5x4]", "f32[4x0]", "f32[5x0]"),
    CONTRACT("mk,kn->mn", "f32[0x0]", "f32[0x0]", "f32[0x0]"),
    CONTRACT("bmk,bkn->bmn", "f32[0x5x4]", "f32[0x4x3]", "f32[0x5x3]"),
    CONTRACT("bmk,bkn->bmn", "f32[2x5x0]", "f32[2x0x3]", "f32[2x5x3]"),
    CONTRACT("ij,j->i", "f32[6x0]", "f32[0]", "f32[6]"),
    CONTRACT("btc,cshd->btshd", "f32[2x5x12]", "f32[12x3x2x4]", "f32[2x5x3x2x4]"),
    CONTRACT("btc,shdc->sbthd", "f32[2x5x12]", "f32[3x2x4x12]", "f32[3x2x5x2x4]"),
    CONTRACT("sbthd,shdc->btc", "f32[3x2x5x2x4]", "f32[3x2x4x12]", "f32[2x5x12]"),
    CONTRACT("sbthd,btc->shdc", "f32[3x2x5x2x4]", "f32[2x5x12]", "f32[3x2x4x12]"),
    CONTRACT("btc,btshd->cshd", "f32[2x5x12]", "f32[2x5x3x2x4]", "f32[12x3x2x4]"),
    CONTRACT("btshd,cshd->btc", "f32[2x5x3x2x4]", "f32[12x3x2x4]", "f32[2x5x12]"),
    CONTRACT("bthd,hdc->btc", "f32[2x5x3x4]", "f32[3x4x10]", "f32[2x5x10]"),
    CONTRACT("btc,cshd->sbthd", "f32[2x5x12]", "f32[12x3x2x4]", "f32[3x2x5x2x4]"),
    CONTRACT("sbthd,cshd->btc", "f32[3x2x5x2x4]", "f32[12x3x2x4]", "f32[2x5x12]"),
    CONTRACT("bthd,bshd->bhts", "f32[2x5x3x8]", "f32[2x6x3x8]", "f32[2x3x5x6]"),
    CONTRACT("bhts,bshd->bthd", "f32[2x3x5x6]", "f32[2x6x3x8]", "f32[2x5x3x8]"),
    CONTRACT("bi,bi->b", "f32[6x40]", "f32[6x40]", "f32[6]"),
    CONTRACT("ij,j->i", "f32[6x40]", "f32[40]", "f32[6]"),
    CONTRACT("i,j->ij", "f32[6]", "f32[40]", "f32[6x40]"),
    CONTRACT("i,i->", "f32[40]", "f32[40]", "f32"),
    CONTRACT("imb,inb->bmn", "f32[4x6x3]", "f32[4x5x3]", "f32[3x6x5]"),
    CONTRACT("ijk,kn->in", "f32[6x3x4]", "f32[4x5]", "f32[6x5]"),
    {"contract, symbolic m", ONE_SYMBOL(3, 0),
     IN("x", "f32[@ax5x12]")
         IN("xz",
            "f32[12x20]") "%y = contract %x %xz {spec=\"btc,cd->btd\"} : f32[@ax5x20]\n" OUT("y")},
    {"contract, symbolic k", ONE_SYMBOL(3, 0),
     IN("x", "f32[@ax5x12]")
         IN("xz",
            "f32[@ax5x20]") "%y = contract %x %xz {spec=\"btc,btd->cd\"} : f32[12x20]\n" OUT("y")},
    {"contract, symbolic n", ONE_SYMBOL(3, 0),
     IN("x", "f32[5x12]")
         IN("xz",
            "f32[12x@ax4]") "%y = contract %x %xz {spec=\"mk,knd->mnd\"} : f32[5x@ax4]\n" OUT("y")},
    {"contract, symbolic m and k", TWO_SYMBOLS(3, 0, 0, 5),
     IN("x", "f32[@ax@b]") IN(
         "xz", "f32[@bx20]") "%y = contract %x %xz {spec=\"mk,kn->mn\"} : f32[@ax20]\n" OUT("y")},
    {"contract, symbolic heads", TWO_SYMBOLS(3, 2, 1, 5),
     IN("x", "f32[@ax5x12]")
         IN("xz", "f32[12x3x@bx4]") "%y = contract %x %xz {spec=\"btc,cshd->btshd\"} : "
                                    "f32[@ax5x3x@bx4]\n" OUT("y")},
    {"contract, symbolic heads summed", TWO_SYMBOLS(3, 2, 1, 0),
     IN("x", "f32[@ax5x@bx4]") IN(
         "xz",
         "f32[@bx4x12]") "%y = contract %x %xz {spec=\"bthd,hdc->btc\"} : f32[@ax5x12]\n" OUT("y")},

    /* ---- Cut contractions: forms, lists of any length, several tiles, outer loops; no GEMM ---- */
    LISTED("mk,kn->mn", "k", "f32[5x17]", "f32[17x9]", "17", "6", "f32[5x9]"),
    LISTED("mk,kn->mn", "k", "f32[5x17]", "f32[17x9]", "17", "0", "f32[5x9]"),
    LISTED("mk,kn->mn", "k", "f32[5x17]", "f32[17x9]", "17", "1", "f32[5x9]"),
    LISTED("mk,kn->mn", "k", "f32[5x17]", "f32[17x9]", "17", "17", "f32[5x9]"),
    LISTED("mk,kn->mn", "k", "f32[5x1]", "f32[1x9]", "1", "3", "f32[5x9]"),
    LISTED("mk,kn->mn", "k", "f32[300x40]", "f32[40x530]", "40", "23", "f32[300x530]"),
    LISTED("mk,nk->mn", "k", "f32[150x40]", "f32[270x40]", "40", "33", "f32[150x270]"),
    LISTED("km,kn->mn", "k", "f32[40x150]", "f32[40x270]", "40", "16", "f32[150x270]"),
    LISTED("km,nk->mn", "k", "f32[40x150]", "f32[270x40]", "40", "7", "f32[150x270]"),
    LISTED("mk,kn->nm", "k", "f32[5x17]", "f32[17x9]", "17", "6", "f32[9x5]"),
    LISTED("mk,kn->mn", "k", "f32[0x17]", "f32[17x9]", "17", "6", "f32[0x9]"),
    LISTED("mk,kn->mn", "k", "f32[5x0]", "f32[0x9]", "0", "0", "f32[5x9]"),
    LISTED("btc,cshd->btshd", "c", "f32[2x5x12]", "f32[12x3x2x4]", "12", "5", "f32[2x5x3x2x4]"),
    LISTED("bthd,hdc->btc", "h", "f32[2x5x3x4]", "f32[3x4x10]", "3", "2", "f32[2x5x10]"),
    LISTED("bthd,hdc->btc", "d", "f32[2x5x3x4]", "f32[3x4x10]", "4", "3", "f32[2x5x10]"),
    LISTED("bthd,bshd->bhts", "d", "f32[2x5x3x8]", "f32[2x6x3x8]", "8", "5", "f32[2x3x5x6]"),
    LISTED("btc,btd->cd", "t", "f32[2x5x12]", "f32[2x5x20]", "5", "3", "f32[12x20]"),
    LISTED("bi,bi->b", "i", "f32[6x40]", "f32[6x40]", "40", "9", "f32[6]"),
    LISTED("ij,j->i", "j", "f32[6x40]", "f32[40]", "40", "0", "f32[6]"),
    LISTED("i,i->", "i", "f32[40]", "f32[40]", "40", "9", "f32"),
    {"contract listed, symbolic list", ONE_SYMBOL(7, 0),
     IN("x", "f32[5x17]") IN("xz", "f32[17x20]")
         IN("i17", "i64[@a]") "%y = contract %x %xz %i17 {spec=\"mk,kn->mn\", cut=\"k\"} : "
                              "f32[5x20]\n" OUT("y")},
    {"contract listed, symbolic list and m", TWO_SYMBOLS(3, 17, 0, 2),
     IN("x", "f32[@ax5x17]") IN("xz", "f32[17x20]")
         IN("i17", "i64[@b]") "%y = contract %x %xz %i17 {spec=\"btc,cd->btd\", cut=\"c\"} : "
                              "f32[@ax5x20]\n" OUT("y")},
    {"contract listed, symbolic k", ONE_SYMBOL(17, 30),
     IN("x", "f32[5x@a]") IN("xz", "f32[20x@a]")
         IN("i17", "i64[6]") "%y = contract %x %xz %i17 {spec=\"mk,nk->mn\", cut=\"k\"} : "
                             "f32[5x20]\n" OUT("y")},

    /* ---- Attention ---- */
    ATTENTION("causal", NO_SYMBOLS, "f32[2x100x3x16]", "f32[2x100x3x16]", "f32[2x100x3x16]",
              "f32[2x100x3x16]", "f32[2x3x100]", "scale=0.25, causal", "", ""),
    ATTENTION("several tiles of keys", NO_SYMBOLS, "f32[1x70x2x8]", "f32[1x600x2x8]",
              "f32[1x600x2x12]", "f32[1x70x2x12]", "f32[1x2x70]", "scale=0.5", "", ""),
    ATTENTION("causal over several tiles", NO_SYMBOLS, "f32[1x530x1x8]", "f32[1x530x1x8]",
              "f32[1x530x1x8]", "f32[1x530x1x8]", "f32[1x1x530]", "scale=0.5, causal", "", ""),
    ATTENTION("more queries than keys, causal", NO_SYMBOLS, "f32[1x9x1x8]", "f32[1x5x1x8]",
              "f32[1x5x1x8]", "f32[1x9x1x8]", "f32[1x1x9]", "scale=0.5, causal", "", ""),
    ATTENTION("shared key heads and mask", NO_SYMBOLS, "f32[2x9x4x8]", "f32[2x7x2x8]",
              "f32[2x7x2x8]", "f32[2x9x4x8]", "f32[2x4x9]", "scale=0.3", IN("m", "f32[2x1x9x7]"),
              " %m"),
    ATTENTION("mask of keys", NO_SYMBOLS, "f32[2x9x4x8]", "f32[2x7x4x8]", "f32[2x7x4x8]",
              "f32[2x9x4x8]", "f32[2x4x9]", "scale=0.3", IN("m", "f32[7]"), " %m"),
    ATTENTION("symbolic batch and heads", TWO_SYMBOLS(2, 3, 1, 0), "f32[@ax33x@bx16]",
              "f32[@ax33x@bx16]", "f32[@ax33x@bx16]", "f32[@ax33x@bx16]", "f32[@ax@bx33]",
              "scale=0.25, causal", "", ""),
    ATTENTION_GRAD("causal", NO_SYMBOLS, "f32[2x100x3x16]", "f32[2x100x3x16]", "f32[2x100x3x16]",
                   "f32[2x100x3x16]", "f32[2x3x100]", "scale=0.25, causal", "", ""),
    ATTENTION_GRAD("several tiles of keys", NO_SYMBOLS, "f32[1x70x2x8]", "f32[1x600x2x8]",
                   "f32[1x600x2x12]", "f32[1x70x2x12]", "f32[1x2x70]", "scale=0.5", "", ""),
    ATTENTION_GRAD("more queries than keys, causal", NO_SYMBOLS, "f32[1x9x1x8]", "f32[1x5x1x8]",
                   "f32[1x5x1x8]", "f32[1x9x1x8]", "f32[1x1x9]", "scale=0.5, causal", "", ""),
    ATTENTION_GRAD("shared key heads and mask", NO_SYMBOLS, "f32[2x9x4x8]", "f32[2x7x2x8]",
                   "f32[2x7x2x8]", "f32[2x9x4x8]", "f32[2x4x9]", "scale=0.3",
                   IN("m", "f32[2x1x9x7]"), " %m"),
    ATTENTION_GRAD("symbolic batch and heads", TWO_SYMBOLS(2, 3, 1, 0), "f32[@ax33x@bx16]",
                   "f32[@ax33x@bx16]", "f32[@ax33x@bx16]", "f32[@ax33x@bx16]", "f32[@ax@bx33]",
                   "scale=0.25, causal", "", ""),
};

/*
 * Kernels of batched launches, over lines of @n elements; and the same over dims, which must give
 * the same bits where no sum is in it.
 */
typedef struct BatchedCase {
    const char *name, *flat, *shaped;
    bool is_elementwise;
} BatchedCase;
enum { SHAPED_ELEMENTS = 1000 };
#define BATCHED(name, body, is_elementwise)                                                        \
    {name, body("f32[@n]", "[0]"), body("f32[5x200]", "[0, 1]"), is_elementwise}
#define ADAM_BODY(type, axes)                                                                      \
    IN("x", type)                                                                                  \
    IN("xm", type)                                                                                 \
    IN("pv", type)                                                                                 \
    IN("g", type)                                                                                  \
    IN("p", "f32")                                                                                 \
    IN("lr", "f32")                                                                                \
    IN("step", "f32")                                                                              \
    "%1 = mul %g %p : " type                                                                       \
    "\n%a, %m, %v = adam %x %xm %pv %1 %lr %step {beta1=0.9, beta2=0.95, "                         \
    "eps=1e-08, wd=0.1, decoupled} : " type ", " type ", " type "\n" OUT("a") OUT("m") OUT("v")
#define MOMENTUM_BODY(type, axes)                                                                  \
    IN("x", type)                                                                                  \
    IN("xm", type)                                                                                 \
    IN("g", type)                                                                                  \
    IN("lr", "f32")                                                                                \
    "%a, %m = momentum %x %xm %g %lr {momentum=0.9, wd=0.01} : " type ", " type "\n" OUT("a")      \
        OUT("m")
#define SQUARES_BODY(type, axes)                                                                   \
    IN("x", type)                                                                                  \
    "%1 = mul %x %x : " type "\n%y = reduce_sum %1 {axes=" axes "} : f32\n" OUT("y")

static const BatchedCase batched_cases[] = {BATCHED("scaled adam", ADAM_BODY, true),
                                            BATCHED("momentum", MOMENTUM_BODY, true),
                                            BATCHED("sum of squares", SQUARES_BODY, false)};

#endif
