"""Hold tiny models of every rotary type of transformers against the files that they write.

Each model has random weights and is alike with its own file, so that whatever is called different
is a false alarm, except where the library itself does not do what the file states (`KNOWN`).
Each type is checked in a process of its own: one that crashes or hangs is ``failed``, and the
others go on. Prints one line for each type, then the counts.

    python benchmarks/running_models.py [TYPE ...]
"""

from __future__ import annotations

import multiprocessing
import re
import resource
import signal
import sys
import tempfile
import time
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers.models.auto import modeling_auto
from transformers.models.auto.configuration_auto import model_type_to_module_name

import posprobe as pp
from posprobe.forward import is_rotary
from posprobe.words import relations

#: Sizes by the names that configurations have for them.
SIZES: dict[str, Any] = {
    "hidden_size": 64, "n_embd": 64, "d_model": 64, "dim": 64, "intermediate_size": 64,
    "num_hidden_layers": 4, "n_layer": 4, "n_layers": 4, "num_layers": 4,
    "num_attention_heads": 4, "n_head": 4, "n_heads": 4, "num_key_value_heads": 2,
    "head_dim": 16, "global_head_dim": 16, "vocab_size": 128, "max_position_embeddings": 256,
    "n_positions": 256, "n_ctx": 256, "sliding_window": 16, "attention_chunk_size": 32,
    "num_local_experts": 4, "num_experts": 4, "n_routed_experts": 4, "moe_num_experts": 4,
    "num_experts_per_tok": 2, "moe_intermediate_size": 32, "n_group": 1, "topk_group": 1,
    "n_shared_experts": 1, "shared_expert_intermediate_size": 32,
    "q_lora_rank": 16, "kv_lora_rank": 16, "qk_nope_head_dim": 8, "qk_rope_head_dim": 8,
    "v_head_dim": 16, "rotary_dim": 8, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
    "cls_token_id": 1, "sep_token_id": 2, "mask_token_id": 3, "local_attention": 16,
    "first_k_dense_replace": 1, "num_kv_shared_layers": 0, "vocab_size_per_layer_input": 128,
    "hidden_size_per_layer_input": 16, "position_embedding_type": "rotary",
    "embed_dim": 64, "depth": 2, "num_heads": 4, "mlp_dim": 64, "ffn_dim": 64,
    "encoder_layers": 2, "decoder_layers": 2, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64,
    "encoder_attention_heads": 4, "decoder_attention_heads": 4, "out_hidden_size": 64,
    "intermediate_dim": 64, "num_experts_per_token": 2, "n_experts": 4,
}  # fmt: skip
#: Settings of single types: the same windows in all layers, where their sizes state others.
OWN_SETTINGS: dict[str, dict[str, Any]] = {
    "minimax": {"sliding_window": None},
    "neomme": {"layer_types": ["sliding_attention", *["full_attention"] * 3]},
}
#: Types of which the library does not do what their file states, with the cause that is named.
KNOWN = {
    "moshi": "window_lost",  # its decoder makes a mask without the window of its configuration
    "qwen3_vl_moe_text": "window_lost",  # its attention sets the window to None
    "qwen3_vl_moe": "window_lost",
    "qwen3_omni_moe_thinker": "window_lost",
    "minimax_m3_vl": "columns",
    "minimax_m3_vl_text": "columns",  # it rotates by partial_rotary_factor and ignores rotary_dim
}
#: A type that takes more time of the processor is ``failed``.
MAX_CPU_SECONDS = 60
#: So is one that waits longer than this, in seconds.
MAX_WAIT_SECONDS = 900.0
#: Larger models are left out: all sizes that matter here are set above.
MAX_PARAMETERS = 20_000_000
#: Lists with one entry for each layer are cut to this many.
N_LAYERS = 4


def shrink(config: Any) -> dict[str, Any]:
    """Return the sizes that a configuration knows, and its lists by layer cut to size."""
    values = config.to_dict()
    settings = {key: size for key, size in SIZES.items() if key in values}
    # Some configurations write other kinds to their file than they hold.
    kinds = list(dict.fromkeys(getattr(config, "layer_types", None) or ()))
    if kinds:
        settings["layer_types"] = [kinds[k % len(kinds)] for k in range(N_LAYERS)]
    for key in ("mlp_layer_types", "no_rope_layers", "layers_block_type"):
        if values.get(key):
            settings[key] = values[key][:N_LAYERS]
    rope = values.get("rope_parameters")
    if isinstance(rope, dict) and rope.get("mrope_section"):
        is_partial = rope.get("partial_rotary_factor", 1.0) < 1
        sections = [1, 1, 2] if is_partial else [2, 3, 3]
        settings["rope_parameters"] = {**rope, "mrope_section": sections}
    if "kv_lora_rank" in values:
        settings["num_key_value_heads"] = 4
        if "qk_rope_head_dim" in values and "head_dim" in values:
            settings["head_dim"] = SIZES["qk_rope_head_dim"]
    for key in getattr(config, "sub_configs", {}):
        section = getattr(config, key, None)
        if section is not None:
            settings[key] = {"model_type": section.model_type, **shrink(section)}
    return {**settings, **OWN_SETTINGS.get(config.model_type, {})}


def build(config_class: Any, model_class: Any) -> Any:
    """Build a tiny model with random weights, with its sections as they are if they must be."""
    settings = shrink(config_class())
    sections = getattr(config_class, "sub_configs", {})
    whole_settings = {key: size for key, size in settings.items() if key not in sections}
    try:
        return build_with(config_class, model_class, settings)
    except Exception:  # noqa: BLE001 - the error without sections says more
        return build_with(config_class, model_class, whole_settings)


def build_with(config_class: Any, model_class: Any, settings: dict[str, Any]) -> Any:
    """Build a model with the sizes among these that it takes."""
    sizes = dict(settings)
    for _ in range(6):
        try:
            config = config_class(**sizes)
            torch.manual_seed(0)
            return model_class._from_config(config).eval()
        except (TypeError, ValueError, AssertionError, RuntimeError) as error:
            names = [key for key in sizes if re.search(rf"\b{key}\b", str(error))]
            if not names:
                raise
            for key in names:
                sizes.pop(key)
    raise ValueError("no sizes fit")


def check_type(name: str) -> tuple[str, str]:
    """Return ``alike``, ``alarm``, ``known`` and so on, and details."""
    try:
        config_class = transformers.CONFIG_MAPPING[name]
        mapped: Any = modeling_auto.MODEL_MAPPING[config_class]
        model_class = mapped[0] if isinstance(mapped, tuple | list) else mapped
        with torch.device("meta"):
            empty = build(config_class, model_class)
        if not is_rotary(empty):
            return "not rotary", ""
        size = sum(parameter.numel() for parameter in empty.parameters())
        if size > MAX_PARAMETERS:
            return (
                "not built",
                f"{size} parameters in the smallest that could be configured",
            )
        model = build(config_class, model_class)
    except Exception as error:  # noqa: BLE001 - hundreds of classes fail in as many ways
        return "not built", f"{type(error).__name__}: {str(error)[:100]}"
    with tempfile.TemporaryDirectory() as folder:
        try:
            model.save_pretrained(folder)
            result = pp.check(folder, model)
        except pp.PosprobeError as error:
            return "refused", str(error)[:160]
    details = [relations.finding_sentence(finding) for finding in result.causes]
    details += [
        relations.not_compared_reason(skipped.reason, skipped.about)
        for skipped in result.not_compared
        if skipped.decides
    ]
    label = {True: "alike", False: "alarm", None: "cannot tell"}[result.alike]
    causes = {finding.cause for finding in result.causes}
    if causes and causes == {KNOWN.get(name)}:
        label = "known"
    return label, " | ".join(details)


def can_rotate(name: str) -> bool:
    """Tell whether a type has a model whose file speaks of rotation, without importing it."""
    if name not in modeling_auto.MODEL_MAPPING_NAMES:
        return False
    folder = (
        Path(transformers.__file__).parent / "models" / model_type_to_module_name(name)
    )
    return any("otary" in file.read_text() for file in folder.glob("modeling_*.py"))


def check_guarded(name: str) -> tuple[str, str]:
    """Check a type in a process of its own, so that a crash or a hang is one line."""
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)

    def send_result() -> None:
        resource.setrlimit(resource.RLIMIT_CPU, (MAX_CPU_SECONDS, MAX_CPU_SECONDS))
        try:
            sender.send(check_type(name))
        except Exception as error:  # noqa: BLE001 - the line names it
            sender.send(("failed", f"{type(error).__name__}: {str(error)[:160]}"))

    process = context.Process(target=send_result)
    process.start()
    sender.close()
    try:
        if receiver.poll(MAX_WAIT_SECONDS):
            return receiver.recv()  # type: ignore[no-any-return]
        return "failed", f"no result within {MAX_WAIT_SECONDS:.0f} s"
    except EOFError:
        process.join()
        if process.exitcode in (-signal.SIGXCPU, -signal.SIGKILL):
            return "failed", f"more than {MAX_CPU_SECONDS} s of the processor"
        return "failed", f"the process ended with exit code {process.exitcode}"
    finally:
        process.kill()
        process.join()
        receiver.close()


def main(names: list[str]) -> None:
    """Check every rotary type, or those that are named."""
    warnings.filterwarnings("ignore")
    transformers.logging.set_verbosity(50)
    transformers.utils.logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    torch.set_num_threads(1)
    counts: Counter[str] = Counter()
    start = time.perf_counter()
    for name in filter(can_rotate, names or transformers.CONFIG_MAPPING.keys()):
        label, details = check_guarded(name)
        counts[label] += 1
        if label != "not rotary":
            print(f"{label:<12}{name:<32}{details}", flush=True)
    seconds = time.perf_counter() - start
    print(", ".join(f"{count} {label}" for label, count in counts.most_common()))
    print(f"{seconds:.0f} s")


if __name__ == "__main__":
    main(sys.argv[1:])
