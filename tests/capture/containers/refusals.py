"""What of the table ends a graph, and why that is right: a refusal that no line here explains fails the test."""

from __future__ import annotations

import re

#: Pattern of the reason -> why.
REFUSED: dict[str, str] = {
    r"a key in a dict from outside": "its class hashes and compares it: no guard can do so without running it",
    r"the text of a tensor": "only the data knows it",
    r"depends on (its|the) data": "only the data knows it",
    r"making an instance of builtins\.(bytearray|memoryview)": "buffers are not modelled",
    r"bytearray|Buffer|memoryview": "buffers are not modelled",
    r"(an object of class|making an instance of) \S+\.(Text|Data|Whole|Real|Angle|Frozen|Row)\b": "a user's subclass "
    "of what never changes is known where the function makes it of what is known, and not from outside",
    r"what a builtin function asks of it": "C code looks inside of an object of which capture knows the type alone",
    r"reading the message": "Python words some errors otherwise in another version",
    r"super\(\) with one argument": "an unbound super object",
    r"property\(\) of anything but functions": "a descriptor of what cannot be called",
    r"that Python's own code makes": "an iterator over what only C code has seen",
    r"calling (methodcaller|itemgetter|attrgetter)": "its arguments are not known",
    r"object\.__(hash|repr|str|reduce|sizeof)\S*": "where an object is in memory",
    r"builtins\.dict_(keys|values|items)": "a view that somebody else has made does not tell its dict",
    r"vars is not|(deleting|setting|reading) attribute|(has|with) attributes": "an attribute of a builtin's own dict",
    r"builtins\.(generator|\w*iterator)": "an iterator from outside: only it knows what it gives",
    r"__class_getitem__": "a generic alias of a user's class",
    r"copying is not supported": "the class has its own way of being copied",
    r"changed meanwhile|changed at its end": "what an iterator gives after a change goes by the table's insides",
    r"the generator .* used outside": "a suspended generator is the machine's own",
    r"the program raises": "an error in the middle of a graph is raised by the call itself",
    r"has (count|index|__\w+__) of its own|is not modelled": "a tuple with methods in the place of tuple's",
    r"use as a constant": "it is not known while capturing",
}


def explained(reason: str) -> bool:
    """Whether a refusal is one that we know."""
    return any(re.search(pattern, reason) for pattern in REFUSED)
