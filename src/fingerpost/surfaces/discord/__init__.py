"""The Discord connector: mentions and direct messages become requests, threads conversations.

Everything here but `library`, `splitting`, `inert` and `people` needs discord.py, which is an extra. The
command loads it; nothing else does.
"""
