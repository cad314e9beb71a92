"""Exceptions: raising, handling, finally, chains, classes of one's own."""

import torch

from tests.capture.programs.table import program, x

LOG = []


class Wrong(Exception):
    def __init__(self, code, note="none"):
        super().__init__(f"wrong {code}")
        self.code = code
        self.note = note


class Worse(Wrong):
    pass


@program(operators=1)
def caught(x):
    try:
        raise ValueError("no")
    except ValueError:
        return x + 1


@program()
def by_tuple_of_classes(x):
    try:
        {}["k"]
    except (ValueError, KeyError) as error:
        return x + 1, error.args


@program()
def class_of_ones_own(x):
    try:
        raise Worse(3, note="n")
    except Wrong as error:
        return x * error.code, error.note, str(error), type(error) is Worse


@program()
def else_and_finally(x):
    log = []
    for n in (1, 0):
        try:
            y = x * (1 // n)
        except ZeroDivisionError:
            log.append("zero")
        else:
            log.append("else")
        finally:
            log.append("finally")
    return y, log


@program()
def return_in_finally(x):
    def f():
        try:
            return x
        finally:
            return x + 1

    return f()


@program()
def through_calls(x):
    def deep(n):
        if n == 0:
            raise KeyError("deep")
        return deep(n - 1)

    try:
        deep(4)
    except KeyError as error:
        return x + 1, repr(error)


@program()
def reraised(x):
    log = []
    try:
        try:
            raise ValueError("a")
        except ValueError:
            log.append(1)
            raise
    except ValueError as error:
        log.append(str(error))
    return x + 1, log


@program()
def raise_from(x):
    try:
        try:
            1 / 0
        except ZeroDivisionError as error:
            raise Wrong(1) from error
    except Wrong as error:
        return x + error.code, type(error.__cause__).__name__


@program()
def implicit_context(x):
    try:
        try:
            raise KeyError("first")
        except KeyError:
            raise ValueError("second")
    except ValueError as error:
        return x + 1, type(error.__context__).__name__


@program()
def assertion(x):
    try:
        assert x.shape[0] == 3, "three rows"
    except AssertionError as error:
        return x + 1, str(error)


@program()
def of_builtins(x):
    seen = []
    for action in (lambda: [][1], lambda: {}["k"], lambda: int("z"), lambda: None.a, lambda: 1 + "a", lambda: len(3)):
        try:
            action()
        except (IndexError, KeyError, ValueError, AttributeError, TypeError) as error:
            seen.append(type(error).__name__)
    return x + 1, seen


@program(breaks="an error that only real tensors prove is handled")
def of_shapes_is_caught(x):
    try:
        return x @ x
    except RuntimeError:
        return x @ x.T


@program()
def notes(x):
    try:
        error = ValueError("a")
        error.add_note("more")
        raise error
    except ValueError as e:
        return x + 1, e.__notes__


@program()
def name_is_deleted(x):
    try:
        raise ValueError
    except ValueError as error:
        pass
    return x + 1, "error" in locals.__name__


@program()
def loop_with_continue(x):
    total = x
    for n in (1, 0, 2):
        try:
            total = total + 6 // n
        except ZeroDivisionError:
            continue
        finally:
            total = total * 2
    return total


@program(breaks="it raises")
def leaves(x):
    y = x + 1
    raise Wrong(x.shape[0], note="left")


@program(lambda: (x(), []), breaks="it raises")
def leaves_after_an_effect(x, log):
    log.append(x.shape[0])
    LOG.append("before")
    raise ValueError(f"{x.shape[1]} columns")


@program(breaks="exception groups")
def group(x):
    y = x * 2
    try:
        raise ExceptionGroup("both", [ValueError("a"), KeyError("b")])
    except* ValueError as caught:
        y = y + len(caught.exceptions)
    except* KeyError:
        y = y * 3
    return y


@program()
def suppressed_in_method(x):
    class Holder:
        def read(self):
            raise AttributeError("gone")

    try:
        Holder().read()
    except AttributeError as error:
        return x + 1, str(error)


@program()
def stop_iteration(x):
    try:
        next(iter([]))
    except StopIteration as stop:
        return x + 1, stop.value


@program()
def warning_is_given(x):
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.warn("careful")
    return x + 1


@program(lambda: (x(), ValueError("given")))
def given_exception(x, error):
    try:
        raise error
    except ValueError as caught:
        return x + 1, caught is error, str(caught)


@program()
def not_implemented(x):
    class Base:
        def run(self, y):
            raise NotImplementedError

    class Derived(Base):
        def run(self, y):
            try:
                return super().run(y)
            except NotImplementedError:
                return y * 2

    return Derived().run(x)


@program()
def raised_class(x):
    try:
        raise KeyError
    except LookupError as error:
        return x + len(error.args)


@program()
def finally_changes_state(x):
    state = {"depth": 0}
    try:
        state["depth"] += 1
        y = torch.relu(x)
    finally:
        state["depth"] -= 1
    return y, state
