"""One file format a module: bytes to plain containers and arrays, and never code.

`readers` finds the format of a file. `pt` (with `archive`, `unpickle`, `torch_names`, and `legacy` for files
from before 1.6), `safetensors`, `npz` and `llamacpp` read one each; `mapped` and `jsons` are used by several.
"""
