"""Programs that write to tensors, cut views from them and give them back, as text: one a line.

`x` and `y` are the inputs, statements are divided by semicolons, the last is the result. `test_programs_of_writes.py`
runs each on tensors of every kind and compares all that a caller can see with eager.
"""

PROGRAMS = r"""
torch.add(x, y, out=x); x
torch.mul(x, y, out=y); (x, y)
z = torch.empty(4, 6); torch.add(x, 1, out=z); (z, z[0])
z = torch.empty(0); torch.add(x, 1, out=z); z
z = torch.empty(2, 3); torch.add(x, 1, out=z); z
z = torch.empty(6, 4).t(); torch.add(x, 1, out=z); z
z = torch.zeros(8, 6); torch.add(x, 1, out=z[2:6]); z
z = torch.zeros(4, 12); torch.add(x, 1, out=z[:, ::2]); (z, z[0])
z = torch.empty(4, 6, dtype=torch.float64); torch.add(x, 1, out=z); z
z = torch.empty(4, 4); torch.mm(x, y.t(), out=z); z
v = torch.empty(4); i = torch.empty(4, dtype=torch.int64); torch.max(x, 1, out=(v, i)); (v, i)
torch.sum(x, 0, out=y[0]); y
torch.cat([x, y], out=torch.empty(8, 6))
torch.exp(x, out=x); x * 1
with torch.no_grad(): torch.exp(x, out=x); x
x.copy_(y.double()); x
x.copy_(y.to(torch.int32)); x
x.copy_(y[:, :1]); x
x.copy_(torch.tensor(3)); x
x[0].copy_(y[0, 0]); x
x.copy_(x.flip(0)); x
x[:, 1:].copy_(x[:, :-1].clone()); x
z = torch.zeros(4, 6, dtype=torch.int64); z.copy_(x); z
z = x.clone(); z.copy_(y); (z, z.t())
x[1:3][:, ::2][0].mul_(3); x
x.t()[1:3].t()[2].fill_(7); x
v = x.view(2, 2, 6); w = v.transpose(0, 1); w[0].add_(1); (x, v, w)
v = x.view(-1); w = v.view(6, 4); w[1].add_(1); (v, w)
x.as_strided((3, 2), (6, 2), 1).mul_(2); x
v = x.as_strided((3, 2), (6, 2), 1); x.add_(1); v
v = x.as_strided((2, 2), (1, 6)); (v, x * 1)
z = x * 2; z.as_strided((3,), (2,), 1).fill_(0); z
z = x * 2; v = z.as_strided((3,), (2,), 1); z.add_(1); (v, z)
x[...] = y; x
x[:] = 2; x
x[None, 0] = y[0]; x
x[-1, ::3] = 9; x
x[1:3, 2:4] = y[:2, :2]; (x, x[1:3])
x[[0, 1], [1, 2]] = 5; x
x[:, [0, 2]] = y[:, [1, 3]]; x
x[x > 2] = 0; x
x[0][1] = 3; x
x[torch.tensor(1)] = 3; x
x.diagonal().copy_(y.diagonal()); x
x.diagonal(1).add_(y[0, 0]); x
a, b = x.chunk(2); a.add_(1); (a, b, x)
a, b = (x * 2).chunk(2); a.add_(1); (a, b)
a, b = (x * 1).split(2); c = a * 1; (a, b, c)
a = x.unbind(0); a[0].mul_(2); (a[0], a[1], x)
a = (x * 2).unbind(1); (a[0], a[3])
v = x.view_as(x); v.mul_(2); (v, x)
v = x.expand(3, 4, 6); (v, v[0])
v = x[0].expand(4, 6); x.add_(1); v
v = x.unfold(0, 2, 1); x.add_(1); v
v = x.real; v.mul_(2); (v, x)
z = torch.view_as_complex(x.view(4, 3, 2)); z.mul_(2); x
z = torch.view_as_complex(x.view(4, 3, 2)); (z, z.real, z.imag)
z = torch.view_as_complex(x.view(4, 3, 2)); w = z.conj(); w * 1
z = torch.view_as_complex(x.view(4, 3, 2)); z.conj()
z = torch.view_as_complex(x.view(4, 3, 2)); z.imag
z = torch.view_as_complex(x.view(4, 3, 2)); z.conj().imag
z = torch.view_as_complex(x.view(4, 3, 2)); z.imag.mul_(2); (z, x)
v = x.detach().requires_grad_(); (v * 2, v)
v = x.detach(); v.requires_grad
z = x * y; z.requires_grad_(); z * 2
z = torch.zeros(4, 6); z.requires_grad_(); z * x
z = torch.zeros(4, 6).requires_grad_(); (z, z * x)
z = torch.zeros(4, 6); z.add_(x); z.mul_(y); z
z = torch.zeros(4, 6); z[0].add_(x[0]); z[1].mul_(y[1]); (z, z[0])
z = x.sin(); z.mul_(y); z
z = x.relu(); z.add_(1); z * y
z = x.sigmoid(); z.mul_(2); z
z = x * y; w = z.exp(); z.zero_(); (w, z)
z = x * y; w = z * z; z.add_(1); w
w = x * y; x.add_(1); w
w = x.exp() * y; x.add_(1); w
x.mul_(2); w = x * y; x.add_(1); w
x.add_(y); y.add_(x); x.mul_(y); (x, y)
x.add_(1); (x.t(), x.detach(), x.data, x)
x = x * 2; x += 1; x
x = x + 0; x[0] += y[0]; (x[0], x)
x.data = x.data * 2; x * 1
x.data.copy_(y); x * 1
x.data[0] = 5; (x * 1, x.data)
x.data.t_(); x * 1
x.unsqueeze_(0).squeeze_(0); x * 2
x.t_().t_(); x * 2
x.swapdims_(0, 1); x * 2
z = x * 2; z.transpose_(0, 1); z.add_(1); z
z = x * 2; v = z[0]; z.t_(); (v, z)
z = x * 2; z.unsqueeze_(0); (z, z[0])
z = x * 2; z.squeeze_(); z
z = x * 2; z.as_strided_((2, 3), (3, 1)); z
x.as_strided_((2, 3), (3, 1)); x * 1
z = x * 2; z.resize_(2, 3); z
z = x * 2; z.resize_(8, 6); z[:4]
z = x * 2; z.set_(y); z
z = torch.empty(0); z.set_(x); z
z = x * 2; z.resize_as_(y[:2]); z
z = x * 2; z.data = y; z
x.detach_(); x * 2
z = x * 2; z.detach_(); (z, z * y)
z = x * 2; v = z[0]; v.detach(); (v.detach(), v)
x.zero_(); (x, x)
x.add_(1); x.detach()
x.add_(1); x.data
y.copy_(x); (y, x * y)
y[0] = x[0]; (y[0], y)
y.t().copy_(x.t()); y
y.view(-1)[:6] = x[0]; y * 2
x.fill_(y[0, 0]); x
x.normal_(0, 0.0); x
x.uniform_(1, 1.0); x
x.clamp_min_(2); x
x.sub_(y, alpha=2); x
x.div_(2); x
x.pow_(2); x
x.neg_(); x
x.abs_(); x
x.sqrt_(); x
x.tanh_(); x * y
x.masked_fill_(x > 3, 0.0); x
x.masked_scatter_(x > 3, y); x
x.index_copy_(0, torch.tensor([0, 2]), y[:2]); x
x.index_fill_(1, torch.tensor([0, 2]), 7.0); x
x.scatter_add_(1, torch.zeros(4, 1, dtype=torch.int64), y); x
x.scatter_reduce_(1, torch.zeros(4, 1, dtype=torch.int64), y, 'sum'); x
x.put_(torch.tensor([1, 2]), y[0, :2]); x
x.tril_(); x
x.triu_(1); x
x.fill_diagonal_(3); x
x.addmm_(y[:, :4], y); x
x.addcdiv_(y, y); x
x.floor_(); x
x.round_(); x
x.cumprod_(1); x
x.logical_not_(); x
x.gt_(y); x
x.renorm_(2, 0, 1.0); x
x.erfinv_(); x
x.nan_to_num_(); x
x.hypot_(y); x
x.copysign_(y); x
x.remainder_(y); x
x.fmod_(2); x
x.random_(1, 2); x
torch.nn.functional.relu(x, inplace=True); x
torch.nn.functional.leaky_relu_(x, 0.1); x
torch.nn.functional.dropout(x, 0.0, True, True); x
torch.nn.functional.hardtanh(x, inplace=True); x
torch.nn.functional.silu(x, inplace=True); x
torch.nn.functional.threshold(x, 2.0, 1.0, inplace=True); x
torch.nn.init.normal_(x, 0, 0.0); x
torch.nn.init.constant_(x[0], 3); x
torch._foreach_mul_([x, y], 2); (x, y)
torch._foreach_add_([x[0], x[1]], [y[0], y[1]]); x
torch._foreach_copy_([x], [y]); x
torch._foreach_zero_([x, y]); (x, y)
torch.square_(x); x
torch.sigmoid_(x); (x, x)
v = x[0:0]; v.add_(1); (v, x)
v = x[:, 0:0]; (v, v.sum())
v = x[0, 0]; v.add_(1); (v, x)
v = x[0, 0]; x.add_(1); v * 1
v = x.flatten(); v.add_(1); (v, x)
v = x.t().flatten(); v.add_(1); (v, x)
v = x.reshape(6, 4); v.add_(1); x
v = x.t().reshape(24); v.add_(1); x
v = x.contiguous(); v.add_(1); x
v = x.to(torch.float32); v.add_(1); x
v = x.float(); v.add_(1); (v, x)
v = x.double(); v.add_(1); (v, x)
v = x.type_as(y); v.add_(1); (v is x, x)
v = x.cpu(); v.add_(1); (v, x)
v = x.clone(); v.add_(1); (v, x)
v = torch.clone(x.t()); v.add_(1); (v, x)
v = x.expand_as(y); v.add_(1); (v, x)
v = torch.squeeze(x); v.add_(1); (v, x)
v = x.view(torch.int32); v.add_(0); v
v = x.view(torch.int32); (v, x * 1)
v = x.view(torch.int16); v
x.swapaxes(0, 1).add_(1); x
x.narrow(1, 2, 3).zero_(); x
x.movedim(0, 1)[2].zero_(); x
x.unflatten(1, (2, 3))[:, 0].add_(1); x
x.tensor_split(3)[1].add_(1); x
x.hsplit(2)[1].add_(1); x
x.select(0, 1).select(0, 2).add_(1); x
x.squeeze().unsqueeze(0).add_(1); x
x.rot90().add_(1); x
x.roll(1).add_(1); x
x.permute(1, 0)[0, 1:].fill_(1); x
torch.atleast_3d(x).add_(1); x
torch.ravel(x).add_(1); x
torch.swapaxes(x, 0, 1)[0].copy_(y[:, 0]); x
(x[0], x[0].t(), x.t()[0])
(x * 1, x.mul(1).t(), x)
z = x + y; (z[0], z[1], z)
z = x + y; (z[0], z[1])
z = x + y; v = z[0]; (v, v[0], v[1:])
z = x + y; (z.detach(), z.detach()[0])
z = x + y; (z.data, z)
z = x + y; z.data.add_(1); z
z = x + y; z.detach().add_(1); z * 2
z = (x + y).t(); v = z.view(2, 3, 4); v[0].add_(1); (z, v)
z = (x + y).expand(2, 4, 6); (z, z[0])
z = (x + y)[0]; z.add_(1); z
z = x.sum(); z.add_(1); z
z = x.sum(); (z, z.view(1), z.expand(3))
z = x[0, 0] * 2; (z.view(1), z)
z = x.new_zeros(4, 6); z[0] = y[0]; z
z = torch.zeros_like(x); z[0] = x[0]; (z, z.t())
z = torch.zeros_like(x); z.copy_(x); z.t()
z = torch.ones(4, 6); z *= x; z -= y; z
z = torch.stack([x, y]); z[0].zero_(); z
z = torch.stack([x, y]); z[1] += x; (z[0], z[1])
z = torch.cat([x, y]); z[:4].mul_(z[4:]); z
l = [x, y]; l[0].add_(1); l[0] * l[1]
y.add_(x); (y, y.t()[0], y.detach())
y.requires_grad_(False) if y.is_leaf else y; x * y
""".strip().splitlines()
