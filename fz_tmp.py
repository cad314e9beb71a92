import random, sys, signal, collections
from tests.capture.fuzz.writer import Writer
from tests.capture.fuzz.run import Call, Mode, differences
start, count = int(sys.argv[1]), int(sys.argv[2])
bad=0
def alarm(*a): raise TimeoutError
signal.signal(signal.SIGALRM, alarm)
for seed in range(start,start+count):
    r=random.Random(seed)
    text=Writer(r, seed%2==0).program()
    calls=tuple(Call(r.randint(-2,5),r.randint(-2,5),r.choice([3,3,4,2])) for _ in range(r.randint(1,3)))
    signal.alarm(60)
    try: found=differences(text,calls,Mode("eager",None,False))
    except TimeoutError: found=["timeout"]
    except Exception as e: found=[repr(e)[:600]]
    signal.alarm(0)
    if found:
        bad+=1
        print("SEED",seed,calls,*[x[:700] for x in found[:2]],sep="\n  ",flush=True)
print(count,"programs",bad,"differ")
