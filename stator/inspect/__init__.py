"""What a person needs to see of a compilation: `explain` says what was compiled, what was not, and why."""
