"""What the words on the page mean: shown over them, and as a list below each question."""

TERMS = {
    "tokens": "Prompt tokens served from the cache / prompt tokens: the work that engines were spared.",
    "requests, by engines": "Requests that computed at most so many tokens of their prompt / requests "
    "with a longer prompt: those that were spared the wait. The bound is the finest that the engines' "
    "histograms have; logs draw it closer, so their rate may be far lower where prompts are short.",
    "requests, by logs": "Requests with the outcome full / requests whose cached tokens are known.",
    "gap": "Hit rate by tokens less hit rate by requests, in percentage points (pp). If it is wide, a few "
    "long prompts are served from the cache while most requests still wait.",
    "of prompt tokens": "How many the hit rate is of: without traffic there is none.",
    "of requests": "Those whose cached tokens are known.",
    "basis": "What engines count: prompt tokens once for each request (prompt, and computed in vLLM 0.13 "
    "to 0.15), or lookups, which short memory inflates: those cannot be compared.",
    "outcomes": "full: nearly all of the prompt came from the cache; partial: some of it; miss: nothing; "
    "uncacheable: a prompt too short to be cached; unknown: the log does not say.",
    "p50, p95, p99": "50, 95 or 99 of 100 requests waited no longer: the upper edge of the histogram's "
    "bucket, so never too small.",
    "prefill of 1,000 tokens": "Seconds that engines took for 1,000 prompt tokens they had to compute.",
    "spent": "By the configured price table: tokens read from, written to and not in the cache, and output.",
    "without a cache": "What the same requests would have cost with every prompt token at the plain price.",
    "saved by the cache": "The difference, and its share. Below zero, writes are paid for and not read back.",
    "requests without a price": "In no cost: their model is not in the price table, or the log does not "
    "say what was billed.",
    "usage": "Share of the engine's own (device) cache that running requests hold; blocks cached for "
    "later are free.",
    "preemptions": "Running requests put back into the queue to free cache, a second (SGLang: retractions).",
    "evicted tokens": "Cached tokens dropped from the device, by the engine's own counter; vLLM has none.",
    "evicted blocks": "Cached blocks removed from the device or the named tier, by KV events.",
    "stored blocks": "Blocks put into the device's cache or the named tier, by KV events.",
    "re-warmed blocks": "Blocks stored on the device after they had been evicted from it: usually work done "
    "twice because the cache is too small.",
    "re-warmed share": "Re-warmed blocks of all blocks stored on the device.",
    "resident blocks": "Blocks that the cache holds, by KV events.",
    "lost batches of events": "Missing from the sequence and not had by replay either: what is resident "
    "or re-warmed is approximate until the engine clears its cache or restarts.",
    "phase": "cold from an engine's start until its hit rate is near that of the model's warm replicas, "
    "then warm.",
    "age": "Time since the engine started.",
    "recovered": "Hit rate as a share of the one at which the replica counts as warm.",
    "warm after": "How long it was cold.",
    "excess": "Prompt tokens computed beyond what the model's common hit rate would have left; below zero "
    "the replica does better than the others. A lone replica has 0.",
    "computed tokens": "Prompt tokens that the cache did not hold.",
}
