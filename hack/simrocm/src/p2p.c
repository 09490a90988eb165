/* p2p.c - send and receive. The messages of one group make progress together, as in a real kernel, so that exchanges do
 * not depend on their order. A message goes through the buffer of its channel; sender and receiver first tell each other
 * their clock and size, and skip the copy if neither buffer was written since the same message went last time. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "rccl.h"

enum { WAITING, POSTED, MOVING, DONE };

static struct channel *channel(const struct comm *c, int from, int to)
{
	return &c->channels[(size_t)from * (size_t)c->ranks + (size_t)to];
}

static char *buffer(const struct comm *c, int from, int to)
{
	return c->channel_buffers + ((size_t)from * (size_t)c->ranks + (size_t)to) * c->channel_buffer_bytes;
}

static void ring(const struct comm *c, int rank)
{
	atomic_fetch_add(&c->infos[rank].doorbell, 1);
	futex_wake(&c->infos[rank].doorbell);
}

static struct cached_message *last(const struct message *m)
{
	return m->send ? &m->comm->sent_last[m->peer] : &m->comm->received_last[m->peer];
}

/* post announces a message; its number on the channel tells a new one from the one before. */
static void post(struct message *m, int64_t clock_ns)
{
	struct comm *c = m->comm;
	const struct cached_message *l = last(m);
	uint64_t generation = simrocm_generation(m->buffer);
	m->skip = generation != 0 && l->buffer == m->buffer && l->bytes == m->bytes && l->generation == generation;
	struct channel *ch = m->send ? channel(c, c->rank, m->peer) : channel(c, m->peer, c->rank);
	uint32_t *number = m->send ? &c->sent[m->peer] : &c->received[m->peer];
	m->number = ++*number;
	uint32_t side = m->number & 1;
	if (m->send) {
		ch->sender[side].clock_ns = clock_ns;
		ch->sender[side].bytes = m->bytes;
		ch->sender[side].may_skip = m->skip;
		atomic_store(&ch->sender_number, m->number);
	} else {
		ch->receiver[side].clock_ns = clock_ns;
		ch->receiver[side].bytes = m->bytes;
		ch->receiver[side].may_skip = m->skip;
		atomic_store(&ch->receiver_number, m->number);
	}
	m->state = POSTED;
	ring(c, m->peer);
}

/* match waits for the other side of the message and fixes when it ends. earlier_ns: end of the channel's last message. */
static bool match(struct message *m, int64_t earlier_ns, double slowdown)
{
	struct comm *c = m->comm;
	int from = m->send ? c->rank : m->peer, to = m->send ? m->peer : c->rank;
	struct channel *ch = channel(c, from, to);
	uint32_t other = atomic_load(m->send ? &ch->receiver_number : &ch->sender_number);
	if ((int32_t)(other - m->number) < 0)
		return false;
	uint32_t side = m->number & 1;
	int64_t a = ch->sender[side].clock_ns, b = ch->receiver[side].clock_ns;
	int64_t start = a > b ? a : b;
	if (ch->sender[side].bytes != ch->receiver[side].bytes) {
		warn("rank %d sends %llu bytes, rank %d receives %llu; both would hang", from,
			(unsigned long long)ch->sender[side].bytes, to, (unsigned long long)ch->receiver[side].bytes);
		hang(c, PATH_STANDARD);
		return false;
	}
	start += MESSAGE_BASE_NS;
	if (earlier_ns > start)
		start = earlier_ns;
	m->end_ns = start + llround(slowdown * (double)message_ns(c, from, to, m->bytes));
	m->skip = ch->sender[side].may_skip != 0 && ch->receiver[side].may_skip != 0;
	m->state = MOVING;
	return true;
}

static void finish(struct message *m)
{
	if (!m->send && !m->skip)
		simrocm_written(m->buffer);
	*last(m) = (struct cached_message){m->buffer, m->bytes, simrocm_generation(m->buffer)};
	m->state = DONE;
}

static bool move(struct message *m)
{
	struct comm *c = m->comm;
	int from = m->send ? c->rank : m->peer, to = m->send ? m->peer : c->rank;
	struct channel *ch = channel(c, from, to);
	if (m->skip || m->moved == m->bytes) {
		finish(m);
		return true;
	}
	if (atomic_load(&ch->full) == (m->send ? 1 : 0))
		return false;
	char *data = (char *)m->buffer + m->moved;
	if (m->send) {
		uint64_t left = m->bytes - m->moved;
		ch->length = (uint32_t)(left < c->channel_buffer_bytes ? left : c->channel_buffer_bytes);
		memcpy(buffer(c, from, to), data, ch->length);
		if (corrupts(c))
			corrupt(m->dtype, buffer(c, from, to), ch->length / dtype_bytes(m->dtype));
		m->moved += ch->length;
		atomic_store(&ch->full, 1);
	} else {
		memcpy(data, buffer(c, from, to), ch->length);
		m->moved += ch->length;
		atomic_store(&ch->full, 0);
	}
	ring(c, m->peer);
	if (m->moved == m->bytes)
		finish(m);
	return true;
}

/* step does what one message can do now. A later message on a channel waits for the earlier ones. */
static bool step(struct batch *b, int i, int64_t clock_ns)
{
	struct message *m = &b->messages[i];
	int64_t earlier_ns = 0;
	for (int j = 0; j < i; j++) {
		const struct message *e = &b->messages[j];
		if (e->send != m->send || e->peer != m->peer)
			continue;
		if (e->state != DONE)
			return false;
		earlier_ns = e->end_ns;
	}
	switch (m->state) {
	case WAITING: post(m, clock_ns); return true;
	case POSTED: return match(m, earlier_ns, b->slowdown);
	case MOVING: return move(m);
	default: return false;
	}
}

void batch_task(struct sim_stream *s, void *arg)
{
	struct batch *b = arg;
	struct comm *c = b->comm;
	take_turn(c, b->ticket);
	if (has_fault(c, FAULT_HANG) || c->topology.hangs)
		hang(c, PATH_STANDARD);
	int64_t start_ns = simrocm_clock_ns(s) + b->late_ns, end_ns = start_ns;
	int left = b->count;
	b->slowdown = batch_slowdown(b);
	while (left > 0 && atomic_load(&c->aborted) == 0) {
		_Atomic uint32_t *doorbell = &c->infos[c->rank].doorbell;
		uint32_t heard = atomic_load(doorbell);
		bool progress = false;
		left = 0;
		for (int i = 0; i < b->count; i++) {
			progress = step(b, i, start_ns) || progress;
			left += b->messages[i].state != DONE;
		}
		if (!progress && left > 0)
			futex_wait(doorbell, heard);
	}
	for (int i = 0; i < b->count; i++)
		if (b->messages[i].end_ns > end_ns)
			end_ns = b->messages[i].end_ns;
	end_ns += queued_at_nic_ns(b, true) > queued_at_nic_ns(b, false) ? queued_at_nic_ns(b, true) : queued_at_nic_ns(b, false);
	simrocm_set_clock_ns(s, end_ns);
	end_turn(c);
	free(b->messages);
	free(b);
}
