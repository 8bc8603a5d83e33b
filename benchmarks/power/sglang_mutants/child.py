"""Process of an SGLang engine without some lines, if its overlap schedule is on."""

from functools import partial

from benchmarks.power.order_lines.host import MutatedHost
from workers.targets.child.inside.main import serve
from workers.targets.sglang.inside.main import host

if __name__ == "__main__":
    serve(partial(host, made=MutatedHost))
