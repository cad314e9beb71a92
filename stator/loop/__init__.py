"""The loop intermediate representation and its scheduler: nests of loops in, fused kernels and a plan out.

`index` and `expr` are the interned algebra, `tables` says how long; `nest` (Program) and `kernel` (Kernel, Schedule)
are the two levels; `text` prints them, `verify` checks their grammar, `evaluate` defines their meaning.
`schedule.schedule` goes from one level to the other: analyse (`deps`), decide (`split`, `fusion`, `layout`, `order`,
`memory`), apply (`apply`, `canonical`). Standard library only.
"""
