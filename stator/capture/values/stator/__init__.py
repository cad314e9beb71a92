"""What a program does with stator itself: the functions of `base/markers.py`, and compiled callables that it calls."""
