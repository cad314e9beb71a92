"""Functions, classes and class statements, instances of users' classes, exceptions and modules."""
