"""Times of a training step under numerics="fast"."""
import sys, torch, json
from benchmarks.gpu.step import Program, Row, FAST, STATOR
name, draws = sys.argv[1], int(sys.argv[2])
import transformers; transformers.utils.logging.set_verbosity_error()
from benchmarks.worker import disable_dropout
p = Program(Row(name, "training"), FAST, "cuda")
disable_dropout(p.module)
p.compile()
for _ in range(10): p.step()
torch.cuda.synchronize()
best = []
for _ in range(7):
    a, b = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    a.record()
    for _ in range(draws): p.step()
    b.record(); torch.cuda.synchronize()
    best.append(a.elapsed_time(b) / draws)
best.sort()
print(name, "ms a step: median", round(best[3], 3), "least", round(best[0], 3), flush=True)
with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as found:
    for _ in range(3): p.step()
    torch.cuda.synchronize()
total = sum(e.self_device_time_total for e in found.key_averages()) / 3e3
print(name, "ms of kernels a step", round(total, 3), flush=True)
rows = sorted([(e.self_device_time_total / 3, e.count / 3, e.key[:110]) for e in found.key_averages()], reverse=True)
for t, c, k in rows[:25]: print(f"  {t:9.1f} us {c:5.1f} {k}")
