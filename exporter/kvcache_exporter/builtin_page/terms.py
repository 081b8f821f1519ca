"""The glossary of the page: shown as tooltips, and as a list below each question."""

TERMS = {
    "tokens": "Prompt tokens served from the cache / prompt tokens: the share of work that engines were "
    "spared.",
    "requests, by engines": "Requests that computed at most a threshold of prompt tokens / requests "
    "with a longer prompt: those that did not wait for prefill. The threshold is the finest that the "
    "engines' histograms have; logs use a lower one, so their rate may be far lower with short prompts.",
    "requests, by logs": "Requests with the outcome full / requests whose cached tokens are known.",
    "gap": "Hit rate by tokens minus hit rate by requests, in percentage points (pp). If it is wide, a few "
    "long prompts are served from the cache while most requests still wait.",
    "of prompt tokens": "The denominator of the hit rate; without traffic there is no hit rate.",
    "of requests": "Requests whose cached tokens are known.",
    "basis": "What engines count: prompt tokens once per request (prompt; in vLLM 0.13 to 0.15 computed), or "
    "lookups, which are inflated when memory is short and cannot be compared.",
    "outcomes": "full: nearly all of the prompt came from the cache; partial: some of it; miss: nothing; "
    "uncacheable: a prompt too short to be cached; unknown: not in the log.",
    "p50, p95, p99": "50, 95 or 99 of 100 requests waited no longer than this, the upper edge of a histogram "
    "bucket, so it is never too small.",
    "prefill of 1,000 tokens": "Seconds of prefill that engines took per 1,000 computed prompt tokens.",
    "spent": "By the configured price table: tokens read from the cache, written to it and not in it, and "
    "output.",
    "without a cache": "What the same requests would have cost with every prompt token at the plain price.",
    "saved by the cache": "The difference, and its share. Below zero, writes are paid for and not read back.",
    "requests without a price": "Without a cost: their model is not in the price table, or the log lacks "
    "what was billed.",
    "usage": "Share of the engine's own (device) cache that running requests hold; blocks cached for "
    "later are free.",
    "preemptions": "Running requests put back into the queue to free cache, per second (SGLang: "
    "retractions).",
    "evicted tokens": "Cached tokens dropped from the device, by the engine's own counter; vLLM has none.",
    "evicted blocks": "Cached blocks removed from the device or the named tier, by KV events.",
    "stored blocks": "Blocks put into the device's cache or the named tier, by KV events.",
    "re-warmed blocks": "Blocks stored on the device after they had been evicted from it: usually work done "
    "twice because the cache is too small.",
    "re-warmed share": "Re-warmed blocks of all blocks stored on the device.",
    "resident blocks": "Blocks that the cache holds, by KV events.",
    "lost batches of events": "Missing from the sequence and not returned by replay: resident and re-warmed "
    "blocks are approximate until the engine clears its cache or restarts.",
    "phase": "cold from an engine's start until its hit rate is near that of the model's warm replicas, "
    "then warm.",
    "age": "Time since the engine started.",
    "recovered": "Hit rate as a share of the one at which the replica counts as warm.",
    "warm after": "How long it was cold.",
    "excess": "Prompt tokens computed beyond those at the model's average hit rate; below zero the replica "
    "is better than the others. A single replica has 0.",
    "computed tokens": "Prompt tokens that the cache did not hold.",
}
