"""Compiled loops that string requests together to sessions and number their blocks."""
# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False

from __future__ import annotations

from cacheenv.sim.core.jit import jit


@jit
def fill_sessions(
    first, follow, output, template, goes_on, gap, template_tokens, old_due, old_context, old_template, max_prompt,
    prompt, parent, session, own_template, due, after, ready,
):  # fmt: skip
    """Fills prompt, parent, session and own_template slot by slot; due, after and ready are scratch."""
    requests = first.shape[0]
    for slot in range(requests):
        due[slot] = -1
    for old in range(old_due.shape[0]):
        if old_due[old] < requests and old_context[old] < max_prompt:
            after[requests + old] = due[old_due[old]]
            due[old_due[old]] = requests + old
    ready_from, ready_to, sessions = 0, 0, 0
    for slot in range(requests):
        waiting = due[slot]
        while waiting >= 0:
            ready[ready_to] = waiting
            ready_to += 1
            waiting = after[waiting]
        last = -1
        if ready_from < ready_to:
            last = ready[ready_from]
            ready_from += 1
        if 0 <= last < requests:
            tokens = prompt[last] + output[last] + follow[slot]
            parent[slot] = last
            session[slot] = session[last]
            own_template[slot] = own_template[last]
        else:
            parent[slot] = -1
            session[slot] = sessions
            sessions += 1
            if last < 0:
                tokens = first[slot]
                own_template[slot] = template[slot]
            else:
                tokens = old_context[last - requests] + follow[slot]
                own_template[slot] = old_template[last - requests]
            shared = own_template[slot]
            if shared >= 0 and tokens < template_tokens[shared]:
                own_template[slot] = -1
        prompt[slot] = min(tokens, max_prompt)
        if goes_on[slot] and prompt[slot] + output[slot] < max_prompt:
            when = slot + gap[slot]
            if when < requests:
                after[slot] = due[when]
                due[when] = slot


@jit
def write_block_ids(prompt, parent, template, template_tokens, page_tokens, template_owner, start, blocks):
    """Writes block ids in order of first appearance; returns how many different ones there are."""
    for shared in range(template_owner.shape[0]):
        template_owner[shared] = -1
    fresh = 0
    at = 0
    for request in range(prompt.shape[0]):
        start[request] = at
        pages = (prompt[request] + page_tokens - 1) // page_tokens
        source = -1
        common = 0
        if parent[request] >= 0:
            source = start[parent[request]]
            common = prompt[parent[request]] // page_tokens
        elif template[request] >= 0:
            shared = template[request]
            if template_owner[shared] >= 0:
                source = start[template_owner[shared]]
                common = template_tokens[shared] // page_tokens
            else:
                template_owner[shared] = request
        for page in range(common):
            blocks[at + page] = blocks[source + page]
        for page in range(common, pages):
            blocks[at + page] = fresh
            fresh += 1
        at += pages
    return fresh


@jit
def write_answer_ids(prompt, output, parent, page_tokens, start, fresh, continued, blocks, answers, answer_pages):
    """Writes the ids of what answers fill, from `fresh` on where no prompt has them; returns how many ids there are.

    A prompt that continues a request holds the ids of its answer; `continued` is scratch, one entry a request.
    """
    requests = prompt.shape[0]
    for request in range(requests):
        continued[request] = -1
    for request in range(requests):
        if parent[request] >= 0:
            continued[parent[request]] = request
    at = 0
    for request in range(requests):
        full = prompt[request] // page_tokens
        pages = (prompt[request] + output[request]) // page_tokens - full
        answer_pages[request] = pages
        following = continued[request]
        for page in range(full, full + pages):
            if following >= 0 and page < prompt[following] // page_tokens:
                answers[at] = blocks[start[following] + page]
            else:
                answers[at] = fresh
                fresh += 1
            at += 1
    return fresh
