from workers.log import *
class Referee:
    def __init__(self, trace): pass
    def follow(self, log): return None
    def waiting(self): return ""
