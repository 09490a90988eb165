/* collective.c - runs one collective on a stream's thread: ranks meet, agree on the modelled time, and move the data
 * through stages in shared memory. Data that cannot differ from last time is not moved again: if no rank's input was
 * written since, and every result is still as the same call left it, the outcome is bit-identical. */
#include <stdlib.h>
#include <string.h>

#include "rccl.h"

void take_turn(struct comm *c, uint64_t ticket)
{
	pthread_mutex_lock(&c->mu);
	while (c->serving != ticket)
		pthread_cond_wait(&c->changed, &c->mu);
	pthread_mutex_unlock(&c->mu);
}

void end_turn(struct comm *c)
{
	pthread_mutex_lock(&c->mu);
	c->serving++;
	c->pending--;
	pthread_cond_broadcast(&c->changed);
	pthread_mutex_unlock(&c->mu);
}

/* hang never returns for a DDA kernel, which has no abort flag; others end when the communicator is aborted. */
void hang(struct comm *c, enum path path)
{
	_Atomic uint32_t never = 0;
	atomic_store(&c->unabortable, path == PATH_DDA_FLAT || path == PATH_DDA_TREE);
	while (atomic_load(&c->aborted) == 0 || atomic_load(&c->unabortable) != 0)
		futex_wait(&never, 0);
}

static uint64_t mix(uint64_t h, uint64_t v)
{
	h ^= v + 0x9e3779b97f4a7c15u + (h << 6) + (h >> 2);
	return h * 0xff51afd7ed558ccdu;
}

static uint64_t signature(const struct op *op)
{
	uint64_t h = mix(mix(mix(1, op->coll), op->path), op->count);
	return mix(mix(mix(h, (uint64_t)op->dtype), (uint64_t)op->redop), (uint64_t)op->root);
}

static struct cached *cache_find(struct comm *c, const struct op *op, uint64_t sig)
{
	for (int i = 0; i < CACHE_ENTRIES; i++) {
		struct cached *e = &c->cache[i];
		if (e->signature == sig && e->send == op->send && e->recv == op->recv)
			return e;
	}
	return NULL;
}

static bool unchanged(const struct cached *e)
{
	return e != NULL && e->send_generation != 0 && e->recv_generation != 0 &&
		e->send_generation == simrocm_generation(e->send) && e->recv_generation == simrocm_generation(e->recv);
}

static char *stage(const struct comm *c, int rank) { return c->stages + (size_t)rank * c->stage_bytes; }

/* corrupts says whether what this rank contributes is wrong. */
bool corrupts(const struct comm *c) { return has_fault(c, FAULT_WRONG_DATA) || fault_across(c, FAULT_WRONG_ACROSS); }

static void put(const struct op *op, char *to, const char *from, size_t elements)
{
	memcpy(to, from, elements * dtype_bytes(op->dtype));
	if (corrupts(op->comm))
		corrupt(op->dtype, to, elements);
}

static size_t smaller(size_t a, size_t b) { return a < b ? a : b; }

/* Every rank stages the same part of its buffer; each combines its share; everybody who needs the result copies it.
 * Two meetings a part are enough: nobody writes a result before all have staged again, hence copied the last one. */
static bool all_reduce(const struct op *op)
{
	struct comm *c = op->comm;
	size_t element = dtype_bytes(op->dtype), step = c->stage_bytes / element;
	char *result = stage(c, c->ranks);
	for (size_t at = 0; at < op->count; at += step) {
		size_t m = smaller(step, op->count - at);
		put(op, stage(c, c->rank), (const char *)op->send + at * element, m);
		if (!barrier_wait(c))
			return false;
		const void *sources[MAX_RANKS];
		size_t low = m * (size_t)c->rank / (size_t)c->ranks, high = m * (size_t)(c->rank + 1) / (size_t)c->ranks;
		for (int r = 0; r < c->ranks; r++)
			sources[r] = stage(c, r) + low * element;
		reduce(op->dtype, op->redop, result + low * element, sources, c->ranks, high - low);
		if (!barrier_wait(c))
			return false;
		if (op->coll == COLL_ALLREDUCE || op->root == c->rank)
			memcpy((char *)op->recv + at * element, result, m * element);
	}
	return true;
}

static bool all_gather(const struct op *op)
{
	struct comm *c = op->comm;
	size_t element = dtype_bytes(op->dtype), step = c->stage_bytes / element;
	bool from_root = op->coll == COLL_BROADCAST;
	for (size_t at = 0; at < op->count; at += step) {
		size_t m = smaller(step, op->count - at);
		if (!from_root || op->root == c->rank)
			put(op, stage(c, c->rank), (const char *)op->send + at * element, m);
		if (!barrier_wait(c))
			return false;
		if (from_root)
			memcpy((char *)op->recv + at * element, stage(c, op->root), m * element);
		else
			for (int r = 0; r < c->ranks; r++)
				memcpy((char *)op->recv + ((size_t)r * op->count + at) * element, stage(c, r), m * element);
		if (!barrier_wait(c))
			return false;
	}
	return true;
}

/* AllToAll and ReduceScatter: every rank stages a part of the block for each peer. */
static bool exchange(const struct op *op)
{
	struct comm *c = op->comm;
	size_t element = dtype_bytes(op->dtype), n = (size_t)c->ranks;
	size_t step = c->stage_bytes / n / element, block = step * element;
	for (size_t at = 0; at < op->count; at += step) {
		size_t m = smaller(step, op->count - at);
		for (size_t r = 0; r < n; r++)
			put(op, stage(c, c->rank) + r * block, (const char *)op->send + (r * op->count + at) * element, m);
		if (!barrier_wait(c))
			return false;
		const void *sources[MAX_RANKS];
		for (size_t r = 0; r < n; r++) {
			sources[r] = stage(c, (int)r) + (size_t)c->rank * block;
			if (op->coll == COLL_ALLTOALL)
				memcpy((char *)op->recv + (r * op->count + at) * element, sources[r], m * element);
		}
		if (op->coll == COLL_REDUCESCATTER)
			reduce(op->dtype, op->redop, (char *)op->recv + at * element, sources, c->ranks, m);
		if (!barrier_wait(c))
			return false;
	}
	return true;
}

#define LP_STEP 4096

static void put_fp8(const struct op *op, uint8_t *to, const char *from, size_t elements)
{
	bool ocp = simrocm_config()->model->fp8_ocp;
	if (corrupts(op->comm)) {
		char copy[LP_STEP * 4];
		memcpy(copy, from, elements * dtype_bytes(op->dtype));
		corrupt(op->dtype, copy, elements);
		fp8_encode(op->dtype, to, copy, elements, ocp);
		return;
	}
	fp8_encode(op->dtype, to, from, elements, ocp);
}

/* Low precision AllGather and AllToAll: one quantisation, no scaling. */
static bool low_precision_copy(const struct op *op)
{
	struct comm *c = op->comm;
	bool ocp = simrocm_config()->model->fp8_ocp, to_all = op->coll == COLL_ALLGATHER;
	size_t element = dtype_bytes(op->dtype), n = (size_t)c->ranks, blocks = to_all ? 1 : n;
	size_t step = smaller(c->stage_bytes / blocks, 1 << 20);
	for (size_t at = 0; at < op->count; at += step) {
		size_t m = smaller(step, op->count - at);
		for (size_t b = 0; b < blocks; b++)
			for (size_t k = 0; k < m; k += LP_STEP)
				put_fp8(op, (uint8_t *)stage(c, c->rank) + b * step + k,
					(const char *)op->send + (b * op->count + at + k) * element, smaller(LP_STEP, m - k));
		if (!barrier_wait(c))
			return false;
		for (size_t r = 0; r < n; r++)
			fp8_decode(op->dtype, (char *)op->recv + (r * op->count + at) * element,
				(const uint8_t *)stage(c, (int)r) + (to_all ? 0 : (size_t)c->rank * step), m, ocp);
		if (!barrier_wait(c))
			return false;
	}
	return true;
}

/* Low precision AllReduce and ReduceScatter: fp32 accumulation; AllReduce quantises the sums again. As in the library
 * (low_precision_allreduce.cc, low_precision_reduce_scatter.cc) the chunk of a rank is floored to 128 elements, so that
 * the tail of AllReduce comes from memory that was never written, and ReduceScatter's offsets shift. */
static bool low_precision_reduce(const struct op *op)
{
	struct comm *c = op->comm;
	bool ocp = simrocm_config()->model->fp8_ocp, all = op->coll == COLL_ALLREDUCE;
	size_t element = dtype_bytes(op->dtype), n = (size_t)c->ranks;
	size_t chunk = (all ? op->count / n : op->count) / 128 * 128;
	size_t step = smaller(c->stage_bytes / n, 1 << 18);
	uint8_t *result = (uint8_t *)stage(c, c->ranks);
	for (size_t at = 0; at < chunk; at += step) {
		size_t m = smaller(step, chunk - at);
		for (size_t r = 0; r < n; r++)
			for (size_t k = 0; k < m; k += LP_STEP)
				put_fp8(op, (uint8_t *)stage(c, c->rank) + r * step + k,
					(const char *)op->send + (r * chunk + at + k) * element, smaller(LP_STEP, m - k));
		if (!barrier_wait(c))
			return false;
		for (size_t k = 0; k < m; k += LP_STEP) {
			float sums[LP_STEP];
			const uint8_t *sources[MAX_RANKS];
			size_t part = smaller(LP_STEP, m - k);
			for (size_t r = 0; r < n; r++)
				sources[r] = (const uint8_t *)stage(c, (int)r) + (size_t)c->rank * step + k;
			fp8_sum(sums, sources, c->ranks, part, ocp);
			if (all)
				fp8_encode_float(result + (size_t)c->rank * step + k, sums, part, ocp);
			else
				from_float(op->dtype, (char *)op->recv + (at + k) * element, sums, part);
		}
		if (!barrier_wait(c))
			return false;
		for (size_t r = 0; all && r < n; r++)
			fp8_decode(op->dtype, (char *)op->recv + (r * chunk + at) * element, result + r * step, m, ocp);
	}
	if (all && n * chunk < op->count)
		memset((char *)op->recv + n * chunk * element, 0, (op->count - n * chunk) * element);
	return true; /* the next operation stages after all ranks have met, so after all have decoded */
}

static bool move(const struct op *op)
{
	bool reduces = op->coll == COLL_ALLREDUCE || op->coll == COLL_REDUCESCATTER;
	if (op->comm->ranks == 1 && op->path != PATH_LOW_PRECISION) {
		memmove(op->recv, op->send, op->count * dtype_bytes(op->dtype));
		return true;
	}
	if (op->path == PATH_LOW_PRECISION)
		return reduces ? low_precision_reduce(op) : low_precision_copy(op);
	switch (op->coll) {
	case COLL_ALLREDUCE:
	case COLL_REDUCE: return all_reduce(op);
	case COLL_ALLGATHER:
	case COLL_BROADCAST: return all_gather(op);
	default: return exchange(op);
	}
}

/* meet exchanges clocks and gives the latest; skip becomes true if no rank has to move data. */
static bool meet(struct op *op, uint64_t sig, int64_t clock_ns, bool *skip, int64_t *start_ns)
{
	struct comm *c = op->comm;
	uint32_t side = c->round++ & 1;
	c->infos[c->rank].slot[side] = (struct slot){clock_ns, sig, *skip};
	if (!barrier_wait(c))
		return false;
	for (int r = 0; r < c->ranks; r++) {
		const struct slot *s = &c->infos[r].slot[side];
		if (s->signature != sig) {
			warn("rank %d and rank %d started different operations; both would hang", c->rank, r);
			hang(c, PATH_STANDARD);
			return false;
		}
		if (s->clock_ns > *start_ns)
			*start_ns = s->clock_ns;
		*skip = *skip && s->may_skip != 0;
	}
	return true;
}

static void run(struct sim_stream *s, struct op *op)
{
	struct comm *c = op->comm;
	if (has_fault(c, FAULT_HANG) || c->topology.hangs) {
		hang(c, op->path);
		return;
	}
	bool dda = op->path == PATH_DDA_FLAT || op->path == PATH_DDA_TREE;
	atomic_store(&c->unabortable, dda);
	uint64_t sig = signature(op);
	struct cached *e = cache_find(c, op, sig);
	bool skip = unchanged(e);
	int64_t start_ns = simrocm_clock_ns(s) + op->late_ns;
	if (meet(op, sig, start_ns, &skip, &start_ns)) {
		if (!skip) {
			uint64_t before = simrocm_generation(op->send);
			if (!move(op))
				return;
			if (op->coll != COLL_REDUCE || op->root == c->rank)
				simrocm_written(op->recv);
			if (e == NULL)
				e = &c->cache[c->cache_next++ % CACHE_ENTRIES];
			*e = (struct cached){sig, op->send, op->recv, before, simrocm_generation(op->recv)};
		}
		simrocm_set_clock_ns(s, start_ns + collective_ns(&c->topology, op->coll, op->path, op->count, op->dtype));
	}
	atomic_store(&c->unabortable, 0);
}

void collective_task(struct sim_stream *s, void *arg)
{
	struct op *op = arg;
	take_turn(op->comm, op->ticket);
	run(s, op);
	end_turn(op->comm);
	free(op);
}
