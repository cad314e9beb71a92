"""What tile IR means, in numpy: each operator as a function, memory that checks every access, and the grid."""
