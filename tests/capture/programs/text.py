"""Strings and formatting."""

from tests.capture.programs.table import program, x


@program()
def f_strings(x):
    n, name = 3, "a"
    return x + 1, f"{name}: {n:03d} {n!r:>5} {n / 2:.2f} {tuple(x.shape)} {x.dtype} {name=}"


@program()
def format_methods(x):
    return x + 1, "{} {b}".format(1, b=2), "%s-%04d" % ("a", 7), format(3.14159, ".2f")


@program()
def methods(x):
    s = "  Hello, World "
    parts = s.strip().lower().split(", ")
    return x * len(parts), parts, "-".join(parts), s.replace("l", "L"), s.find("W"), s.title().swapcase()


@program()
def tests_on_strings(x):
    return x + "abc".startswith("ab") + "abc".endswith(("x", "c")), "1".isdigit(), "b" in "abc", "abc".count("a")


@program()
def keys_by_string(x):
    state = {"layer.0.weight": x, "layer.1.weight": x * 2}
    return {k.split(".")[1]: v for k, v in state.items() if k.endswith("weight")}


@program()
def slicing_and_indexing(x):
    s = "abcdef"
    return x + s.index("c"), s[1:4], s[::-1], s[-1], s * 2, s + "g"


@program()
def partition_and_strip(x):
    return x + 1, "a=b=c".partition("="), "a=b".rpartition("="), "xxax".strip("x"), "pre_a".removeprefix("pre_")


@program()
def comparison(x):
    return x * ("a" < "b") + ("a" == "a"), sorted(["b", "A"], key=str.lower), max("abc")


@program()
def dispatch_by_name(x):
    return getattr(x, "re" + "lu")(), {"sum": x.sum}["sum"]()


@program()
def bytes_and_encoding(x):
    return x + 1, "abc".encode().hex(), bytes.fromhex("6162"), "a\tb".expandtabs(4), "ab".ljust(4, "."), "5".zfill(3)


@program()
def text_of_values(x):
    return x + 1, str([1, "a"]), repr({"k": (1,)}), str(None), repr("q"), str(x.dtype), str(x.shape), f"{[1, 2]}"


@program()
def multiplication_of_text_in_error(x):
    try:
        raise ValueError(f"size {x.size(0)} of {x.shape}")
    except ValueError as error:
        return x + 1, str(error), error.args


@program(breaks="the text of a tensor depends on its data")
def text_of_a_tensor(x):
    y = x * 2
    return f"{y}", y


@program()
def translate(x):
    return x + 1, "abc".translate(str.maketrans("ab", "xy")), "a,b\nc".splitlines(), "aXb".casefold()
