import torch, stator
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
def ms(f, n=30):
    for _ in range(5): f()
    torch.cuda.synchronize()
    best = []
    for _ in range(5):
        a, b = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        a.record()
        for _ in range(n): f()
        b.record(); torch.cuda.synchronize()
        best.append(a.elapsed_time(b) / n)
    return sorted(best)[2]
for shape, causal in [((16, 12, 512, 64), False), ((8, 12, 512, 64), True), ((32, 12, 197, 64), False), ((4, 32, 4096, 64), False), ((4, 32, 4096, 64), True), ((4, 16, 4096, 128), False), ((4, 16, 4096, 128), True)]:
    q, k, v = (torch.randn(shape[0], shape[2], shape[1], shape[3], device="cuda", dtype=torch.bfloat16).transpose(1, 2).requires_grad_() for _ in range(3))
    g = torch.randn(shape[0], shape[2], shape[1], shape[3], device="cuda", dtype=torch.bfloat16).transpose(1, 2)
    v.data += torch.randn(1, shape[1], 1, shape[3], device="cuda", dtype=torch.bfloat16)
    q.data *= 0.1
    wide = None
    if shape[2] <= 512:
        wide = [x.detach().double().requires_grad_() for x in (q, k, v)]
        with sdpa_kernel(SDPBackend.MATH):
            F.scaled_dot_product_attention(*wide, is_causal=causal).backward(g.double())
    for name, options, backend in [("eager cudnn", None, SDPBackend.CUDNN_ATTENTION), ("eager flash", None, SDPBackend.FLASH_ATTENTION), ("ours", {}, SDPBackend.FLASH_ATTENTION), ("ours exact", {"numerics": "fast"}, SDPBackend.FLASH_ATTENTION)]:
        def attend(q, k, v):
            return F.scaled_dot_product_attention(q, k, v, is_causal=causal)
        f = attend if options is None else stator.compile(attend, options=dict(options, check_speed="off"))
        with sdpa_kernel(backend):
            def step():
                o = f(q, k, v)
                return torch.autograd.grad(o, (q, k, v), g)
            found = step()
            with torch.no_grad():
                forward = ms(lambda: f(q, k, v))
            t = ms(step)
        errors = [f"{((a.double() - w.grad).norm() / w.grad.norm()).item():.1e}" for a, w in zip(found, wide)] if wide else ""
        print(shape, causal, name, f"forward {forward * 1e3:.1f} both {t * 1e3:.1f} gradients {(t - forward) * 1e3:.1f} us", errors, flush=True)
