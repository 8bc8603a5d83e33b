"""Main program of an engine's process that also records every function that it executes.

Its arguments are the package, the module of the usual main program, and the arguments of that module.
"""

import runpy
import sys

from workers.targets.child.inside.notes import Notes, all_functions_of

if __name__ == "__main__":
    _, package, module, *arguments = sys.argv
    Notes(package, all_functions_of).install()
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
