"""What kernels do by an instruction itself, as compilers know too much or too little of it, in one assembly or another.

Where a device's record names none, the same functions are written without; a number out of range becomes the end of the
range that is nearest then, and what is not a number becomes 0, as conversions of AMD's and Intel's GPUs give.
Neighbours: `operators.py` spells by these names, `emit.py` puts the text of the device in front of the kernels.
"""

from __future__ import annotations

PTX = """\
@triton.jit
def _after_previous():
    # From here on the kernel that was queued before has ended, and all that it wrote is there.
    nothing = tl.full([], 0, tl.int32)
    tl.inline_asm_elementwise("griddepcontrol.wait; mov.b32 $0, $1;", "=r,r", [nothing], tl.int32, False, 1)


@triton.jit
def _signed(a, dtype: tl.constexpr):
    # The instruction itself. LLVM takes -1 or 0 for a flag, and makes bfloat16 of the flag: 1 or 0. In a formula by the
    # absolute value, ptxas takes that to be positive, which it is not of the lowest number.
    if a.dtype.primitive_bitwidth < 64:
        a = a.to(tl.int32)
        if dtype == tl.float64:
            result = tl.inline_asm_elementwise("cvt.rn.f64.s32 $0, $1;", "=d,r", [a], tl.float64, True, 1)
        else:
            result = tl.inline_asm_elementwise("cvt.rn.f32.s32 $0, $1;", "=f,r", [a], tl.float32, True, 1)
    else:
        if dtype == tl.float64:
            result = tl.inline_asm_elementwise("cvt.rn.f64.s64 $0, $1;", "=d,l", [a], tl.float64, True, 1)
        else:
            result = tl.inline_asm_elementwise("cvt.rn.f32.s64 $0, $1;", "=f,l", [a], tl.float32, True, 1)
    return result


@triton.jit
def _tanh(a):
    # libdevice's numbers, without its branch: both ways take as long as the jump, and those of other elements go along.
    if a.dtype == tl.float64:
        result = libdevice.tanh(a)
    else:
        size = tl.abs(a)
        square = a * a
        near = tl.fma(square, 0.01573968306183815, -0.05230396240949631)
        near = tl.fma(near, square, 0.13315297663211823)
        near = tl.fma(near, square, -0.33332768082618713)
        near = tl.fma(tl.fma(near, square, 0.0), a, a)  # the zero keeps the sign of a
        far = tl.exp2(size * 2.885390043258667) + 1.0
        far = tl.inline_asm_elementwise("rcp.approx.ftz.f32 $0, $1;", "=r,r", [far], tl.float32, True, 1)
        far = tl.where(size >= 9.010913848876953, 1.0, tl.fma(far, -2.0, 1.0))
        result = tl.where(size >= 0.6000000238418579, libdevice.copysign(far, a), near)
    return result


@triton.jit
def _erf(a):
    # libdevice's numbers, without its branches, whose coefficients would be moved about for each element.
    if a.dtype == tl.float64:
        result = libdevice.erf(a)
    else:
        size = tl.abs(a)
        square = a * a
        near = tl.fma(square, 8.483494457323104e-05, -0.0008213091641664505)
        near = tl.fma(near, square, 0.005213488824665546)
        near = tl.fma(near, square, -0.026868773624300957)
        near = tl.fma(near, square, 0.11284004896879196)
        near = tl.fma(near, square, -0.37612664699554443)
        near = tl.fma(near, square, 0.12837915122509003)
        near = tl.fma(near, a, a)
        far = tl.fma(size, 1.6425845387857407e-05, -0.0004680210549850017)
        far = tl.fma(far, size, 0.0052647641859948635)
        far = tl.fma(far, size, -0.034303076565265656)
        far = tl.fma(far, size, 0.1532936990261078)
        far = tl.fma(far, size, 0.9163130521774292)
        far = tl.fma(far, size, 0.6282998323440552)
        far = tl.fma(far, -size, -size)
        far = 1.0 - tl.inline_asm_elementwise("ex2.approx.ftz.f32 $0, $1;", "=r,r", [far], tl.float32, True, 1)
        result = tl.where(size >= 1.002959966659546, libdevice.copysign(far, a), near)
    return result


@triton.jit
def _rough_sigmoid(a):
    # By the instructions for powers of two and reciprocals alone: of large numbers right to the last places but five.
    # A sixteenth, as reciprocals below the normal numbers are 0. So may powers be: nothing is left of them beside it.
    power = a * -1.4426950408889634
    power = tl.inline_asm_elementwise("ex2.approx.ftz.f32 $0, $1;", "=r,r", [power], tl.float32, True, 1)
    power = tl.fma(power, 0.0625, 0.0625)
    return 0.0625 * tl.inline_asm_elementwise("rcp.approx.ftz.f32 $0, $1;", "=r,r", [power], tl.float32, True, 1)


@triton.jit
def _rough_silu(a):
    return a * _rough_sigmoid(a)


@triton.jit
def _rough_sqrt(a):
    # Right to the last place but one, also of numbers below the normal ones, which Triton's own takes for nothing.
    return tl.inline_asm_elementwise("sqrt.approx.f32 $0, $1;", "=r,r", [a], tl.float32, True, 1)


@triton.jit
def _bf16(a):
    # Two at once: of one alone it is an instruction of an eighth of the rate.
    return tl.inline_asm_elementwise("cvt.rn.bf16x2.f32 $0, $2, $1;", "=r,r,r", [a], tl.bfloat16, True, 2)


@triton.jit
def _f16(a):
    return tl.inline_asm_elementwise("cvt.rn.f16x2.f32 $0, $2, $1;", "=r,r,r", [a], tl.float16, True, 2)


@triton.jit
def _short(a):
    return tl.inline_asm_elementwise("cvt.u16.u32 $0, $1;", "=h,r", [a.to(tl.int32)], tl.int16, True, 1)


@triton.jit
def _negative(a):
    # LLVM is not to see it: it would make an absolute value of it and a comparison, whose instruction ptxas takes to
    # give no less than 0, which of the lowest number it does.
    if not a.dtype.is_int_signed():
        return 0 - a
    if a.dtype.primitive_bitwidth == 64:
        return tl.inline_asm_elementwise("neg.s64 $0, $1;", "=l,l", [a], tl.int64, True, 1)
    return tl.inline_asm_elementwise("neg.s32 $0, $1;", "=r,r", [a.to(tl.int32)], tl.int32, True, 1).to(a.dtype)


@triton.jit
def _whole_32(a):
    # The instruction of eager's kernels, of which LLVM would assume that the number is in range.
    return tl.inline_asm_elementwise("cvt.rzi.s32.f32 $0, $1;", "=r,f", [a.to(tl.float32)], tl.int32, True, 1)


@triton.jit
def _whole_64(a):
    return tl.inline_asm_elementwise("cvt.rzi.s64.f32 $0, $1;", "=l,f", [a.to(tl.float32)], tl.int64, True, 1)


@triton.jit
def _double_whole_32(a):
    return tl.inline_asm_elementwise("cvt.rzi.s32.f64 $0, $1;", "=r,d", [a], tl.int32, True, 1)


@triton.jit
def _double_whole_64(a):
    return tl.inline_asm_elementwise("cvt.rzi.s64.f64 $0, $1;", "=l,d", [a], tl.int64, True, 1)
"""

PLAIN = """\
@triton.jit
def _after_previous():
    pass


@triton.jit
def _signed(a, dtype: tl.constexpr):
    return a.to(dtype)


@triton.jit
def _tanh(a):
    return libdevice.tanh(a)


@triton.jit
def _erf(a):
    return libdevice.erf(a)


@triton.jit
def _rough_sigmoid(a):
    return 1.0 / (1.0 + libdevice.exp(-a))


@triton.jit
def _rough_silu(a):
    return a / (1.0 + libdevice.exp(-a))


@triton.jit
def _rough_sqrt(a):
    return tl.sqrt_rn(a)


@triton.jit
def _bf16(a):
    return a.to(tl.bfloat16)


@triton.jit
def _f16(a):
    return a.to(tl.float16)


@triton.jit
def _short(a):
    return a.to(tl.int16)


@triton.jit
def _negative(a):
    return 0 - a


@triton.jit
def _whole(a, dtype: tl.constexpr, end: tl.constexpr, most: tl.constexpr):
    inside = (a > -end) & (a < end)
    whole = tl.where(inside, a, 0.0).to(dtype)
    return tl.where(a >= end, most, tl.where(a <= -end, -most - 1, whole))


@triton.jit
def _whole_32(a):
    return _whole(a.to(tl.float32), tl.int32, 2147483648.0, 0x7FFFFFFF)


@triton.jit
def _whole_64(a):
    return _whole(a.to(tl.float32), tl.int64, 9223372036854775808.0, 0x7FFFFFFFFFFFFFFF)


@triton.jit
def _double_whole_32(a):
    return _whole(a, tl.int32, 2147483648.0, 0x7FFFFFFF)


@triton.jit
def _double_whole_64(a):
    return _whole(a, tl.int64, 9223372036854775808.0, 0x7FFFFFFFFFFFFFFF)
"""

#: Assembly language, as the record of a device has it → the text.
INSTRUCTIONS = {"ptx": PTX, "": PLAIN}
