"""What the names of torch's types in a pickle mean in NumPy."""

from __future__ import annotations

import ml_dtypes
import numpy as np

__all__ = ["DTYPES", "STORAGES", "UNSUPPORTED"]


def _dtype(name: str) -> np.dtype | None:
    try:
        return np.dtype(getattr(ml_dtypes, name, None) or name)
    except TypeError:
        return None


_NAMES = """
    float16 float32 float64 bfloat16 int8 int16 int32 int64 uint8 uint16 uint32 uint64 bool complex64
    complex128 float8_e4m3fn float8_e5m2 float8_e4m3fnuz float8_e5m2fnuz float8_e8m0fnu complex32
""".split()  # noqa: SIM905
_OTHER_NAMES = {
    "half": "float16", "float": "float32", "double": "float64", "cfloat": "complex64", "chalf": "complex32",
    "cdouble": "complex128", "short": "int16", "int": "int32", "long": "int64",
}  # fmt: skip

DTYPES: dict[str, np.dtype | None] = {f"torch.{name}": _dtype(name) for name in _NAMES}
"""``torch.float16`` and so on; None where NumPy has no such type, so that it can be named but not read."""
DTYPES |= {f"torch.{other}": DTYPES[f"torch.{name}"] for other, name in _OTHER_NAMES.items()}

_STORAGE_NAMES = {
    "Half": "float16", "BFloat16": "bfloat16", "Float": "float32", "Double": "float64", "Char": "int8",
    "Short": "int16", "Int": "int32", "Long": "int64", "Byte": "uint8", "Bool": "bool",
    "ComplexFloat": "complex64", "ComplexDouble": "complex128", "Untyped": "uint8",
}  # fmt: skip

STORAGES: dict[str, np.dtype] = {
    f"{module}.{name}Storage": np.dtype(getattr(ml_dtypes, dtype, None) or dtype)
    for name, dtype in _STORAGE_NAMES.items()
    for module in ("torch", "torch.cuda", "torch.storage")
}

UNSUPPORTED = {
    "torch._utils._rebuild_sparse_tensor": "a sparse tensor (torch._utils._rebuild_sparse_tensor)",
    "torch._utils._rebuild_qtensor": "a quantised tensor (torch._utils._rebuild_qtensor)",
    "torch._utils._rebuild_nested_tensor": "a nested tensor (torch._utils._rebuild_nested_tensor)",
    "torch._utils._rebuild_wrapper_subclass": "a tensor subclass (torch._utils._rebuild_wrapper_subclass)",
    "torch._tensor._rebuild_from_type_v2": "a tensor subclass or a tensor with attributes "
    "(torch._tensor._rebuild_from_type_v2)",
    "torch._utils._rebuild_parameter_with_state": "a parameter with attributes "
    "(torch._utils._rebuild_parameter_with_state)",
    "torch._utils._rebuild_meta_tensor_no_storage": "a tensor on the meta device, which has no data "
    "(torch._utils._rebuild_meta_tensor_no_storage)",
}
"""Well-known globals that carry tensors this reader does not build, in words."""
