"""Writes a tiny Llama without weights, a token a word; run by an engine's interpreter: DIR WORDS_FILE."""

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


TEMPLATE = (
    "{% for message in messages %}{{ message['role'] + ' ' + message['content'] + ' ' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'assistant' }}{% endif %}"
)


def write(folder: Path, words: list[str]) -> None:
    """Words that are no token of their own would all be the same one."""
    from tokenizers import Tokenizer, models, pre_tokenizers  # noqa: PLC0415 -- only the engine has it

    folder.mkdir(parents=True, exist_ok=True)
    own = [f"w{n}" for n in range(VOCABULARY)]
    own[len(SPECIAL) : len(SPECIAL) + len(words)] = words
    tokenizer = Tokenizer(models.WordLevel({word: n for n, word in enumerate(own)}, unk_token="w3"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.save(str(folder / "tokenizer.json"))
    kind = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 4096, "chat_template": TEMPLATE}
    (folder / "tokenizer_config.json").write_text(json.dumps(kind | SPECIAL))
    (folder / "config.json").write_text(json.dumps(CONFIG))


if __name__ == "__main__":
    write(Path(sys.argv[1]), ["user", "assistant", *Path(sys.argv[2]).read_text().split()])
