"""Writes a tiny Llama without weights and with one token a word; run by an engine's interpreter: DIR."""

import json
import sys
from pathlib import Path

VOCABULARY = 4096
SPECIAL = {"bos_token": "w0", "eos_token": "w1", "pad_token": "w2", "unk_token": "w3"}
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 512,
    "intermediate_size": 1536,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 64,
    "vocab_size": VOCABULARY,
    "max_position_embeddings": 4096,
    "rope_theta": 10000.0,
    "rms_norm_eps": 1e-5,
    "hidden_act": "silu",
    "bos_token_id": 0,
    "eos_token_id": 1,
    "pad_token_id": 2,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
}


def write(folder: Path) -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers  # noqa: PLC0415 -- only the engine has it

    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = Tokenizer(models.WordLevel({f"w{n}": n for n in range(VOCABULARY)}, unk_token="w3"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.save(str(folder / "tokenizer.json"))
    kind = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 4096}
    (folder / "tokenizer_config.json").write_text(json.dumps(kind | SPECIAL))
    (folder / "config.json").write_text(json.dumps(CONFIG))


if __name__ == "__main__":
    write(Path(sys.argv[1]))
