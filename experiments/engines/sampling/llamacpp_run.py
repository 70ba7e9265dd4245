"""llama.cpp's samplers, one after another in its default order, through its C API in the xllamacpp wheel."""

import ctypes
from importlib.metadata import version
from pathlib import Path

import numpy as np
import xllamacpp
from cases import V, record

LIBRARY = ctypes.CDLL(str(next(Path(xllamacpp.__file__).parent.glob("*.so"))))
KNOWN = (
    "temperature", "top_k", "top_p", "min_p", "typical_p", "top_n_sigma", "xtc_probability", "xtc_threshold",
    "repetition_penalty", "presence_penalty", "frequency_penalty", "penalty_last_n", "logit_bias",
)  # fmt: skip


class Token(ctypes.Structure):
    """llama_token_data."""

    _fields_ = (("id", ctypes.c_int32), ("logit", ctypes.c_float), ("p", ctypes.c_float))


class Tokens(ctypes.Structure):
    """llama_token_data_array."""

    _fields_ = (("data", ctypes.POINTER(Token)), ("size", ctypes.c_size_t), ("selected", ctypes.c_int64),
                ("sorted", ctypes.c_bool))  # fmt: skip


class Bias(ctypes.Structure):
    """llama_logit_bias."""

    _fields_ = (("token", ctypes.c_int32), ("bias", ctypes.c_float))


def made(name, *values):
    """A sampler of the C API."""
    function = getattr(LIBRARY, f"llama_sampler_init_{name}")
    function.restype = ctypes.c_void_p
    return ctypes.c_void_p(function(*values))


def samplers(settings):
    """Those that are set, in the order of common_params_sampling."""
    number, size, whole = ctypes.c_float, ctypes.c_size_t, ctypes.c_int32
    found = {}
    if "logit_bias" in settings:
        biases = [(int(token), bias) for token, bias in settings["logit_bias"].items()]
        held = (Bias * len(biases))(*biases)
        found["logit_bias"] = made("logit_bias", whole(V), whole(len(held)), held)
    if any(name in settings for name in ("repetition_penalty", "presence_penalty", "frequency_penalty")):
        found["penalties"] = made(
            "penalties", whole(V), whole(settings.get("penalty_last_n", 64)),
            number(settings.get("repetition_penalty", 1.0)), number(settings.get("frequency_penalty", 0.0)),
            number(settings.get("presence_penalty", 0.0)),
        )  # fmt: skip
    if "top_n_sigma" in settings:
        found["top_n_sigma"] = made("top_n_sigma", number(settings["top_n_sigma"]))
    if "top_k" in settings:
        found["top_k"] = made("top_k", whole(settings["top_k"]))
    for name, key in (("typical", "typical_p"), ("top_p", "top_p"), ("min_p", "min_p")):
        if key in settings:
            found[key] = made(name, number(settings[key]), size(0))
    if "xtc_probability" in settings:
        probability, threshold = number(settings["xtc_probability"]), number(settings["xtc_threshold"])
        found["xtc"] = made("xtc", probability, threshold, size(0), ctypes.c_uint32(1))
    if "temperature" in settings:
        found["temperature"] = made("temp", number(settings["temperature"]))
    return found


def law_of(logits, settings, prompt, output):
    """The softmax of what is left after all samplers."""
    data = (Token * V)(*[(i, float(x), 0.0) for i, x in enumerate(logits)])
    array = Tokens(ctypes.cast(data, ctypes.POINTER(Token)), V, -1, False)
    for name, sampler in samplers(settings).items():
        if name == "penalties":
            for token in (*prompt, *output):
                LIBRARY.llama_sampler_accept(sampler, ctypes.c_int32(token))
        LIBRARY.llama_sampler_apply(sampler, ctypes.byref(array))
        LIBRARY.llama_sampler_free(sampler)
    left = [(array.data[i].id, array.data[i].logit) for i in range(array.size)]
    law = np.zeros(V)
    law[[token for token, _ in left]] = np.exp([logit - max(x for _, x in left) for _, logit in left])
    return law / law.sum()


DEFAULT = xllamacpp.CommonParams().sampling.samplers
record("llama.cpp", "llama.cpp", f"in xllamacpp {version('xllamacpp')}", KNOWN, law_of,
       "llama_sampler_init_* of its C API, in its default order, which "
       f"the wheel states as {DEFAULT!r}")  # fmt: skip
