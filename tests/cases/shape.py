"""Views, joins, repeats, pads and the gradients of views."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from tests.cases.model import F32, FLOATS, I64, Case, gradients, mask, normal, permuted, strided

SHAPED = (F32, torch.bfloat16, I64)


def attention_heads(x):
    """Split into heads, reordered and joined again, as every transformer does."""
    b, s, h = x.shape
    heads = x.view(b, s, 2, h // 2).transpose(1, 2)
    return (heads * 2).transpose(1, 2).reshape(b, s, h), heads.contiguous()


def rotate_half(x, c):
    half = x.shape[-1] // 2
    return x * c + torch.cat((-x[..., half:], x[..., :half]), dim=-1) * (1 - c)


CASES = [
    Case(
        "views",
        lambda x: ((x + 1).view(4, 6).t(), (x * 2).permute(2, 0, 1), x[1], x[:, 1:3] + 1),
        (normal(2, 3, 4),),
        SHAPED,
    ),
    Case(
        "reshape_permuted",
        lambda x: (x.reshape(6, 4), (x * 2).reshape(-1)),
        (permuted(normal(2, 3, 4), 2, 0, 1),),
        SHAPED,
    ),
    Case("slices", lambda x: (x[:, ::2] * 1, x[1:, 1:-1, 1:2], x[..., -1] + 1, x[:, 5:]), (normal(3, 4, 5),), SHAPED),
    Case("heads", attention_heads, (normal(2, 3, 8),), SHAPED),
    Case(
        "expand",
        lambda x: (x.expand(3, 2, 4) + 1, x.unsqueeze(0).squeeze(), x.expand(5, 2, 4)),
        (normal(2, 4),),
        SHAPED,
    ),
    Case("view_dtype", lambda x: (x * 2).view(torch.int32) + 1, (normal(2, 3),), (F32,)),
    Case("squeeze", lambda x: (x.squeeze() * 2, x.squeeze(1), x.squeeze((1, 3)) + 1), (normal(2, 1, 3, 1),), SHAPED),
    Case("split", lambda x: (*[p * 2 for p in x.split(2, 1)], *x.chunk(3, 0), *x.unbind(0)), (normal(3, 5),), SHAPED),
    Case("split_sizes", lambda x: tuple(p + 1 for p in x.split([1, 3, 1], 1)), (normal(3, 5),), SHAPED),
    Case(
        "cat",
        lambda a, b, c: (torch.cat((a, b, c), 1), torch.cat((a * 2, b), -1) + 1),
        (normal(2, 3), normal(2, 1), normal(2, 4)),
        SHAPED,
    ),
    Case(
        "cat_first", lambda a, b: torch.cat((a.t(), b, a.t()), 0).exp(), (normal(2, 3), normal(1, 2)), FLOATS, slack=2.0
    ),
    Case("stack_empty", lambda a, b: torch.stack((a * 2, b), 1), (normal(3, 0), normal(3, 0)), (F32,)),
    Case(
        "view_copies",
        lambda x: (torch.permute_copy(x, (2, 0, 1)), torch.diagonal_copy(x, 1, 0, 2), *torch.unbind_copy(x, 1)),
        (normal(3, 2, 4),),
        SHAPED,
    ),
    Case(
        "diag_embed",
        lambda x: (torch.diag_embed(x), torch.diag_embed(x, -1, 0, 2), torch.diag_embed(x, 2, 1, -1) * 2),
        (normal(2, 3),),
        SHAPED,
    ),
    Case(
        "block_diag",
        lambda a, b, c: torch.block_diag(a, b * 2, c[0], c[1, 0]),
        (normal(2, 3), normal(1, 2), normal(3, 2)),
        SHAPED,
    ),
    Case("rot90", lambda x: tuple(torch.rot90(x, k, (2, 0)) + 1 for k in range(-1, 4)), (normal(2, 3, 4),), SHAPED),
    Case("channel_shuffle", lambda x: torch.channel_shuffle(x, 3) * 2, (normal(2, 6, 3, 5),), SHAPED),
    Case("cat_empty", lambda a, b: torch.cat((a, b), 0), (normal(0), normal(2, 3)), (F32,)),
    Case("cat_mixed", lambda a, m: torch.cat((a, m), 0), (normal(2, 3), mask(2, 3)), FLOATS),
    Case(
        "stack", lambda a, b: (torch.stack((a, b)), torch.stack((a, b), -1) * 2), (normal(2, 3), normal(2, 3)), SHAPED
    ),
    Case("rotate_half", gradients(rotate_half), (normal(2, 3, 4), normal(3, 4)), slack=4.0),
    Case("repeat", lambda x: (x.repeat(2, 3), x.repeat(2, 1, 2), x.repeat_interleave(2, 0)), (normal(2, 3),), SHAPED),
    Case(
        "flip_roll", lambda x: (x.flip(0, 1), x.roll(1, 0), x.roll((1, -2), (0, 1)), x.roll(2)), (normal(3, 4),), SHAPED
    ),
    Case("triangles", lambda x: (x.tril(), x.triu(1), x.tril(-1) + x), (normal(2, 3, 4),), (*SHAPED, torch.bool)),
    Case(
        "pad", lambda x: (F.pad(x, (1, 2)), F.pad(x, (1, 0, 2, 1), value=3), F.pad(x, (-1, 1))), (normal(2, 4),), SHAPED
    ),
    Case("pad_gradients", gradients(lambda x: F.pad(x, (1, 2, 0, 1))), (normal(2, 3),)),
    Case("diagonal", lambda x: (x.diagonal() * 2, x.diagonal(1, -1, 0), torch.trace(x[0])), (normal(3, 3, 4),), (F32,)),
    Case("diagonal_gradients", gradients(lambda x: x.diagonal(1, 0, 2)), (normal(3, 2, 4),)),
    Case("diagonal_below", gradients(lambda x: x.diagonal(-1)), (normal(4, 3),)),
    Case("unfold", lambda x: x.unfold(1, 3, 2) * 2, (normal(2, 7),), SHAPED),
    Case(
        "as_strided",
        lambda x: ((x * 2).as_strided((2, 2), (1, 3), 1), x.as_strided((3,), (2,), 1) + 1),
        (normal(3, 4),),
        SHAPED,
    ),
    Case("slice_gradients", gradients(lambda x: x[:, 1:3] * x[:, :2]), (normal(3, 4),)),
    Case("step_gradients", gradients(lambda x: x[:, 1::2]), (normal(3, 6),)),
    Case("select_gradients", gradients(lambda x: x[:, 1] * x[:, -1]), (normal(3, 4),)),
    Case(
        "scatters",
        lambda x, y: (x.slice_scatter(y, 1, 1, 3), x.select_scatter(y[:, 0], 1, -1), x.slice_scatter(y, 1, 0, 4, 2)),
        (normal(3, 4), normal(3, 2)),
        SHAPED,
    ),
    Case("diagonal_scatter", lambda x, y: x.diagonal_scatter(y, 1), (normal(3, 4), normal(3)), (F32,)),
    Case(
        "pixel_shuffle",
        lambda x: (F.pixel_shuffle(x, 2), F.pixel_unshuffle(F.pixel_shuffle(x, 2), 2)),
        (normal(1, 4, 2, 3),),
        (F32,),
    ),
    Case(
        "expanded_read", lambda x: (x.exp().unsqueeze(1).expand(3, 2, 4) * 2).sum(0), (normal(3, 4),), (F32,), slack=4.0
    ),
    Case("contiguous", lambda x: (x.contiguous() + 1, x.clone(), x.t().contiguous()), (strided(normal(3, 8)),), SHAPED),
    Case("same_twice", lambda x: (x + 1, x + 1, x), (normal(3),), SHAPED),
    Case("empty_views", lambda x: (x.view(0, 6), x.reshape(2, 0), (x * 2).transpose(0, 1)), (normal(0, 2, 3),), (F32,)),
    Case("movedim", lambda x: x.movedim((0, 1), (2, 0)) * 1, (normal(2, 3, 4),), (F32,)),
    Case("swapped_sum", lambda x: x.transpose(1, 2).reshape(4, -1).sum(1), (normal(2, 3, 4),), (F32,), slack=4.0),
]
