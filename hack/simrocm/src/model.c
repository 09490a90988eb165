/* model.c - computes what model.h describes. */
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "model.h"
#include "rccl.h"

static bool same_node(const struct comm *c, int a, int b) { return strcmp(c->infos[a].host, c->infos[b].host) == 0; }

/* node_bus_mbps is the busbw of the ranks that share rank first's node; slowest gets their slowest pair. */
static int64_t node_bus_mbps(const struct comm *c, int first, int *local, int64_t *slowest)
{
	const struct rank_info *f = &c->infos[first];
	bool pcie = false;
	int64_t least = INT64_MAX;
	double worst = 1;
	int n = 0, gpus = 0;
	uint8_t seen[SIM_MAX_GPUS] = {0};
	for (int a = first; a < c->ranks; a++) {
		if (!same_node(c, first, a))
			continue;
		n++;
		const struct rank_info *i = &c->infos[a];
		int gpu = i->ordinal / i->partitions;
		gpus += !seen[gpu];
		seen[gpu] = 1;
		for (int b = a + 1; b < c->ranks; b++) {
			if (!same_node(c, a, b))
				continue;
			int peer = c->infos[b].ordinal;
			if (i->pair_kind[peer] != SIM_LINK_XGMI)
				pcie = true;
			if (i->pair_mbps[peer] < least)
				least = i->pair_mbps[peer];
			if (i->pair_kind[peer] == SIM_LINK_XGMI)
				worst = fmin(worst, (double)i->pair_mbps[peer] / (double)i->nominal_pair_mbps);
		}
	}
	*local = n;
	if (n < 2)
		return INT64_MAX;
	if (least < *slowest)
		*slowest = least;
	bool mesh = f->hive_size > 0;
	int peers = gpus > 1 ? gpus - 1 : 1;
	int64_t bus = mesh ? least * peers * f->efficiency_permille / 1000 : (int64_t)((double)f->ring_mbps * worst);
	if (pcie && (f->cross_mbps < bus || (mesh && gpus <= f->hive_size)))
		bus = f->cross_mbps;
	return bus > 0 ? bus : 1;
}

static bool is_node(const struct rank_info *i, const char *name) { return strcmp(i->host, name) == 0 || strcmp(i->node, name) == 0; }

/* pair_percent is what the faults between two nodes leave of the bandwidth; hangs is set where they leave nothing. */
static int pair_percent(const struct rank_info *a, const struct rank_info *b, bool *hangs)
{
	int percent = 100;
	for (int turn = 0; turn < 2; turn++) {
		const struct rank_info *one = turn == 0 ? a : b, *other = turn == 0 ? b : a;
		for (int p = 0; p < one->node_pair_count; p++) {
			if (!is_node(other, one->node_pairs[p].other))
				continue;
			*hangs = *hangs || one->node_pairs[p].hangs;
			percent = one->node_pairs[p].percent < percent ? one->node_pairs[p].percent : percent;
		}
	}
	return percent;
}

/* worst_pair_percent looks at every pair of nodes in the communicator; hangs is set where this rank's node is in one that
 * hangs. firsts are the first ranks of the nodes. */
static int worst_pair_percent(const struct comm *c, const int *firsts, int nodes, bool *hangs)
{
	int worst = 100;
	for (int a = 0; a < nodes; a++)
		for (int b = a + 1; b < nodes; b++) {
			bool pair_hangs = false;
			int percent = pair_percent(&c->infos[firsts[a]], &c->infos[firsts[b]], &pair_hangs);
			worst = percent < worst ? percent : worst;
			if (pair_hangs && (same_node(c, c->rank, firsts[a]) || same_node(c, c->rank, firsts[b])))
				*hangs = true;
		}
	return worst;
}

void topology_compute(struct comm *c)
{
	int firsts[MAX_RANKS];
	bool sockets = false;
	struct topology *t = &c->topology;
	*t = (struct topology){.ranks = c->ranks, .bus_mbps = INT64_MAX, .pair_mbps = INT64_MAX, .local_ranks = c->ranks};
	int64_t nic = INT64_MAX;
	for (int r = 0; r < c->ranks; r++) {
		bool first = true;
		for (int q = 0; q < r && first; q++)
			first = !same_node(c, q, r);
		if (c->infos[r].nic_mbps < nic)
			nic = c->infos[r].nic_mbps;
		sockets = sockets || c->infos[r].sockets != 0;
		if (!first)
			continue;
		int local = 0;
		int64_t bus = node_bus_mbps(c, r, &local, &t->pair_mbps);
		firsts[t->nodes++] = r;
		if (bus < t->bus_mbps)
			t->bus_mbps = bus;
		if (local < t->local_ranks)
			t->local_ranks = local;
	}
	if (t->nodes > 1) {
		int percent = worst_pair_percent(c, firsts, t->nodes, &t->hangs);
		t->hangs = t->hangs || has_fault(c, FAULT_HANG_ACROSS);
		int64_t network = nic * t->local_ranks * 875 / 1000;
		t->network_mbps = nic * 94 / 100;
		if (sockets && network > TCP_MBPS)
			network = TCP_MBPS;
		if (sockets && t->network_mbps > TCP_MBPS / t->local_ranks)
			t->network_mbps = TCP_MBPS / t->local_ranks;
		network = network * percent / 100;
		t->network_mbps = t->network_mbps * percent / 100;
		if (network < t->bus_mbps)
			t->bus_mbps = network;
		t->bus_mbps = t->bus_mbps > 0 ? t->bus_mbps : 1;
		t->network_mbps = t->network_mbps > 0 ? t->network_mbps : 1;
	}
}

/* MB/s are bytes a microsecond. */
static double transfer_ns(double bytes, double mbps) { return bytes * 1000 / mbps; }

static double base_ns(const struct topology *t, double eight_ranks_ns)
{
	int local = t->local_ranks < 8 ? t->local_ranks : 8;
	double ns = eight_ranks_ns * (0.4 + 0.6 * (local - 1) / 7);
	if (t->nodes > 1)
		ns += 25000 * ceil(log2(t->nodes));
	return ns;
}

static double standard_wire_ns(const struct topology *t, enum coll coll, double bytes)
{
	double n = t->ranks, bus = (double)t->bus_mbps;
	switch (coll) {
	case COLL_ALLREDUCE:
		return transfer_ns(bytes * 2 * (n - 1) / n, bus);
	case COLL_ALLTOALL: {
		double near = transfer_ns(bytes * (n - 1) / n, EXCHANGE_SHARE * bus);
		if (t->nodes > 1) {
			double far = transfer_ns(bytes * (n - t->local_ranks) / n, (double)t->network_mbps);
			return fmax(near, far);
		}
		return near;
	}
	case COLL_BROADCAST:
	case COLL_REDUCE:
		return transfer_ns(bytes, bus);
	default:
		return transfer_ns(bytes * (n - 1) / n, bus);
	}
}

int64_t collective_ns(const struct topology *t, enum coll coll, enum path path, size_t count, int dtype)
{
	static const double base[] = {[COLL_ALLREDUCE] = 20000, [COLL_REDUCE] = 16000, [COLL_REDUCESCATTER] = 18000,
		[COLL_ALLGATHER] = 18000, [COLL_BROADCAST] = 16000, [COLL_ALLTOALL] = 17000};
	double bytes = (double)count * (double)dtype_bytes(dtype), n = t->ranks;
	if (coll == COLL_REDUCESCATTER || coll == COLL_ALLGATHER || coll == COLL_ALLTOALL)
		bytes *= n;
	if (t->ranks == 1) /* a copy within the GPU */
		return llround(6000 + transfer_ns(bytes, 2000000));
	double wire = standard_wire_ns(t, coll, bytes), pair = (double)t->pair_mbps;
	switch (path) {
	case PATH_DDA_FLAT:
		if (coll != COLL_ALLREDUCE)
			return llround(9000 + transfer_ns(bytes / n, 0.97 * pair));
		return llround(8000 + transfer_ns(bytes, 0.9 * pair));
	case PATH_DDA_TREE:
		return llround(10500 + transfer_ns(2 * bytes / n, 0.97 * pair));
	case PATH_LOW_PRECISION:
		return llround(base_ns(t, 40000) + wire * (dtype == ncclFloat32 ? 0.5 : 0.66));
	case PATH_P2P_ALLGATHER:
		return llround(base_ns(t, 30000) + wire / 0.7);
	default:
		return llround(base_ns(t, base[coll]) + wire);
	}
}

/* message_ns is the transfer of one message between two ranks, without the base latency. */
int64_t message_ns(const struct comm *c, int from, int to, uint64_t bytes)
{
	const struct rank_info *a = &c->infos[from], *b = &c->infos[to];
	double mbps = 2000000;
	if (!same_node(c, from, to)) {
		bool hangs = false;
		mbps = 0.94 * (double)(a->nic_mbps < b->nic_mbps ? a->nic_mbps : b->nic_mbps);
		if (a->sockets != 0 || b->sockets != 0)
			mbps = fmin(mbps, TCP_MBPS);
		mbps *= pair_percent(a, b, &hangs) / 100.0;
	} else if (from != to)
		mbps = 0.964 * (double)a->pair_mbps[b->ordinal];
	return llround(transfer_ns((double)bytes, mbps));
}

/* batch_slowdown: with more peers at once than the two of a ring a GPU's links reach the share that AllToAll reaches. */
double batch_slowdown(const struct batch *b)
{
	bool seen[MAX_RANKS] = {false};
	int peers = 0;
	for (int i = 0; i < b->count; i++) {
		int peer = b->messages[i].peer;
		peers += !seen[peer] && peer != b->comm->rank;
		seen[peer] = true;
	}
	return peers > 2 ? 1 / EXCHANGE_SHARE : 1;
}

/* queued_at_nic_ns is how much longer the messages to (or from) other nodes take because they share the GPU's one NIC. */
int64_t queued_at_nic_ns(const struct batch *b, bool sends)
{
	int64_t total = 0, longest = 0;
	for (int i = 0; i < b->count; i++) {
		const struct message *m = &b->messages[i];
		if (m->send != sends || same_node(b->comm, b->comm->rank, m->peer))
			continue;
		int64_t ns = message_ns(b->comm, m->peer, b->comm->rank, m->bytes);
		total += ns;
		longest = ns > longest ? ns : longest;
	}
	return total - longest;
}
