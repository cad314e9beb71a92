"""Modules of numbers and operators, on what is known while capturing."""

import cmath
import math
import operator
import statistics

import numpy

from tests.capture.programs.table import program


@program()
def whole_numbers(x):
    return x * math.gcd(4, 6) + math.comb(4, 2) + math.prod([1, 2, 3]) + math.isqrt(17) + math.factorial(3)


@program()
def real_numbers(x):
    return x * math.hypot(3, 4) + math.fsum([0.1] * 10) + math.isclose(1, 1.0) + math.copysign(2.0, -0.0)


@program()
def complex_numbers(x):
    return x * cmath.phase(1j) + abs(cmath.sqrt(-4)) + cmath.isnan(complex("nan"))


@program()
def numbers_of_numpy(x):
    bound = numpy.log(2.0)
    return (x * numpy.sqrt(8)).clamp(-bound, bound), numpy.sqrt(2) * x, numpy.exp(1.0)


@program(breaks="what NumPy warns of is for each call")
def a_warning_of_numpy(x):
    with numpy.errstate(all="ignore"):
        return x * 2, numpy.log(-1.0)


@program()
def statistics_of_constants(x):
    return x * statistics.mean([1, 2, 3]) + statistics.stdev([1.0, 2, 4]) + statistics.median([3, 1, 2])


@program()
def functions_of_operators(x):
    known = operator.index(3) + operator.countOf([1, 1], 1) + operator.indexOf([1, 2], 2) + operator.length_hint([1])
    return operator.add(x, operator.mul(2, 3)) + operator.neg(2) + operator.itemgetter(0)([known])
