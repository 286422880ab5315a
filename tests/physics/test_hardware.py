"""What a scenario may write as a preset."""

import pytest

from cacheenv.errors import InputError
from cacheenv.physics import Options, derive_preset, load_preset

INLINE = {
    "model": "my-model", "layers": 40, "prefill_a_s": 0.01, "prefill_b_s": 5e-5, "prefill_c_s": 1e-9,
    "decode_d_s": 0.02, "decode_e_s": 1e-5, "decode_f_s": 5e-8, "kv_bytes_per_token": 100_000,
    "capacity_tokens": 500_000,
}  # fmt: skip


def test_all_coefficients_may_be_written():
    made = load_preset(INLINE)
    assert (made.prefill_b_s, made.decode_f_s, made.layers, made.model) == (5e-5, 5e-8, 40, "my-model")
    assert (made.min_prefill_s, made.n_tile, made.kv_copies) == (0.02, 1, 1)
    assert made.min_load_gbytes_per_s == pytest.approx(100_000 / 5e-5 / 1e9)


def test_some_replace_those_of_a_named_one():
    named, made = load_preset("llama3-8b_1xH100"), load_preset({"preset": "llama3-8b_1xH100", "decode_d_s": 0.01})
    assert (made.decode_d_s, made.decode_e_s, made.prefill_b_s) == (0.01, named.decode_e_s, named.prefill_b_s)
    assert made.source.endswith("llama3-8b_1xH100 with decode_d_s changed")
    assert load_preset({"preset": "llama3-8b_1xH100"}).prefill_c_s == named.prefill_c_s


def test_some_replace_those_of_a_derived_one():
    asked = {"model": "llama3-8b", "gpu": "h100-sxm", "tp": 2, "weights": "fp8"}
    derived, made = load_preset(asked), load_preset({**asked, "capacity_tokens": 1000})
    assert derived == derive_preset("llama3-8b", "h100-sxm", Options(tp=2, weights="fp8"))
    assert (made.capacity_tokens, made.prefill_b_s) == (1000, derived.prefill_b_s)


@pytest.mark.parametrize(
    ("value", "part"),
    [
        ({}, "expected also prefill_a_s"),
        ({**INLINE, "prefill_b_s": "5e-5"}, "prefill_b_s: expected a number >= 0, got '5e-5'"),
        ({**INLINE, "prefill_b_s": float("nan")}, "prefill_b_s: expected a number >= 0, got nan"),
        ({**INLINE, "decode_d_s": -1}, "decode_d_s: expected a number >= 0, got -1"),
        ({**INLINE, "layers": 0}, "layers: expected an integer >= 1, got 0"),
        ({**INLINE, "layers": 4.0}, "layers: expected an integer >= 1, got 4.0"),
        ({**INLINE, "prefil_b_s": 1}, "unknown key prefil_b_s (did you mean 'prefill_b_s'?)"),
        ({**INLINE, "model": 7}, "model: expected text, got 7"),
        ({**INLINE, "prefill_b_s": 0, "prefill_c_s": 0}, "prefill_b_s: expected a number > 0"),
        ({key: INLINE[key] for key in INLINE if key != "decode_f_s"}, "expected also decode_f_s"),
        ({"preset": 3}, "preset: expected the name of a preset"),
        ({"preset": "llama3-8b_1xH10"}, "unknown physics preset"),
        ({"model": "llama3-8b", "tp": 1}, "gpu: expected text beside tp"),
        ({"model": "llama3-8b", "gpu": "h100-sxm", "tp": 1.5}, "tp: expected an integer >= 1, got 1.5"),
        ({"model": "llama3-8b", "gpu": "h100-sxm", "tp": 1, "kv": "int4"}, "kv: expected one of bf16, fp8, got 'int4'"),
        ({"model": "llama3-8b", "gpu": "h100-sxm", "tp": 1, "batch": 4}, "unknown key batch"),
    ],
)
def test_bad_mappings_say_what_is_expected(value, part):
    with pytest.raises(InputError) as caught:
        load_preset(value)
    assert part in str(caught.value) and "\n" not in str(caught.value)
