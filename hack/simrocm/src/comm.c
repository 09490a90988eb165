/* comm.c - communicators: ranks meet in the shared segment, learn who is on which node, and set the gates up. A rank that
 * dies meanwhile leaves the others waiting, as with the real library; whoever started them has to end them. */
#define _GNU_SOURCE
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "rccl.h"

#define COMM_MAGIC 0x73696d726f636d31u
/* A unique id is the magic number, the name of the segment, and whether a root process waits behind that name. */
#define ROOTED_AT 72

struct comm *checked_comm(void *handle)
{
	struct comm *c = handle;
	return c != NULL && c->magic == COMM_MAGIC ? c : NULL;
}

/* has_fault says whether the fault is that of this communicator's GPU. */
bool has_fault(const struct comm *c, enum sim_fault fault)
{
	return (simrocm_config()->faulty[fault] >> c->ordinal & 1) != 0;
}

/* fault_across says whether the GPU has a fault that shows only over several nodes. */
bool fault_across(const struct comm *c, enum sim_fault fault) { return c->topology.nodes > 1 && has_fault(c, fault); }

static uint64_t process_token(void)
{
	static _Atomic uint64_t token;
	uint64_t none = 0, fresh = (uint64_t)getpid();
	if (getrandom(&fresh, sizeof fresh, 0) != sizeof fresh || fresh == 0)
		fresh = (uint64_t)getpid();
	atomic_compare_exchange_strong(&token, &none, fresh);
	return atomic_load(&token);
}

/* The identity of a node, by which RCCL decides who is on the same one (src/misc/utils.cc:80). */
static void host_identity(char *out, size_t size)
{
	const char *id = getenv("NCCL_HOSTID");
	char name[80] = "";
	if (id != NULL && id[0] != 0) {
		snprintf(out, size, "%s", id);
		return;
	}
	gethostname(name, sizeof name - 1);
	snprintf(out, size, "%s %s", name, simrocm_config()->boot_id);
}

static void introduce(struct comm *c)
{
	const struct sim_config *conf = simrocm_config();
	struct rank_info *i = &c->infos[c->rank];
	host_identity(i->host, sizeof i->host);
	memcpy(i->pci, conf->pci[c->ordinal], sizeof i->pci);
	i->process = process_token();
	i->ordinal = c->ordinal;
	i->partitions = conf->partitions;
	i->hive_size = conf->model->hive_size;
	i->efficiency_permille = conf->model->efficiency_permille;
	i->ring_mbps = conf->model->ring_mbps;
	i->cross_mbps = conf->model->cross_mbps;
	i->nominal_pair_mbps = conf->nominal_pair_mbps;
	i->nic_mbps = conf->nic_mbps[c->ordinal];
	i->sockets = network_choice()->sockets;
	i->node_pair_count = conf->node_pair_count;
	memcpy(i->node_pairs, conf->node_pairs, sizeof i->node_pairs);
	snprintf(i->node, sizeof i->node, "%.63s", conf->node);
	memcpy(i->pair_mbps, conf->pair_mbps[c->ordinal], sizeof i->pair_mbps);
	memcpy(i->pair_kind, conf->pair_kind[c->ordinal], sizeof i->pair_kind);
}

/* wait_for_nobody: the root thread gives up on a wrong rank or world size and answers nobody, so all wait for ever
 * (src/bootstrap.cc bootstrapRoot, bootstrapInit). */
static int wait_for_nobody(struct comm *c)
{
	_Atomic uint32_t never = 0;
	while (atomic_load(&c->aborted) == 0)
		futex_wait(&never, 0);
	return ncclInternalError;
}

static int attach(struct comm *c)
{
	int rc = segment_attach(c);
	if (rc != ncclSuccess)
		return rc;
	uint32_t expected = 0;
	if (!atomic_compare_exchange_strong(&c->segment->ranks, &expected, (uint32_t)c->ranks) && expected != (uint32_t)c->ranks) {
		warn("Bootstrap Root : mismatch in info from procs, nranks %u vs %d", expected, c->ranks);
		return wait_for_nobody(c);
	}
	if (atomic_exchange(&c->infos[c->rank].present, 1) != 0) {
		warn("Bootstrap Root : rank %d of %d ranks has already checked in", c->rank, c->ranks);
		return wait_for_nobody(c);
	}
	introduce(c);
	ras_join(c);
	_Atomic uint32_t *attached = &c->segment->attached;
	uint32_t here = atomic_fetch_add(attached, 1) + 1;
	if (here == (uint32_t)c->ranks) {
		segment_unlink(c);
		futex_wake(attached);
	}
	while ((here = atomic_load(attached)) < (uint32_t)c->ranks) {
		if (atomic_load(&c->aborted) != 0)
			return ncclInternalError;
		futex_wait(attached, here);
	}
	segment_attached(c);
	return ncclSuccess;
}

/* bus_number is a PCI address as the library prints it: its hexadecimal digits as one number. */
uint64_t bus_number(const char *pci)
{
	uint64_t n = 0;
	for (; *pci != 0; pci++)
		if (isxdigit((unsigned char)*pci))
			n = n << 4 | (uint64_t)(isdigit((unsigned char)*pci) ? *pci - '0' : tolower((unsigned char)*pci) - 'a' + 10);
	return n;
}

/* check_duplicates: rccl src/init.cc initTransportsRank compares the host hash and the bus id of all ranks. */
static int check_duplicates(const struct comm *c)
{
	const struct rank_info *me = &c->infos[c->rank];
	for (int r = 0; r < c->ranks; r++)
		if (r != c->rank && strcmp(c->infos[r].host, me->host) == 0 && strcmp(c->infos[r].pci, me->pci) == 0)
			return fail(ncclInvalidUsage, "Duplicate GPU detected : rank %d and rank %d both on CUDA device %llx", c->rank, r,
				(unsigned long long)bus_number(me->pci));
	return ncclSuccess;
}

/* all_ready is the last meeting. An error of one rank ends the others with ncclRemoteError, as its closed socket would. */
static int all_ready(struct comm *c, int result)
{
	struct segment *s = c->segment;
	if (result != ncclSuccess) {
		atomic_store(&s->failed, (uint32_t)c->rank + 1);
		futex_wake(&s->barrier.generation);
		return result;
	}
	uint32_t generation = atomic_load(&s->barrier.generation);
	if (atomic_fetch_add(&s->barrier.arrived, 1) + 1 == (uint32_t)c->ranks) {
		atomic_store(&s->barrier.arrived, 0);
		atomic_fetch_add(&s->barrier.generation, 1);
		futex_wake(&s->barrier.generation);
		return ncclSuccess;
	}
	while (atomic_load(&s->barrier.generation) == generation) {
		uint32_t failed = atomic_load(&s->failed);
		if (failed != 0)
			return fail(ncclRemoteError, "rank %u failed while the communicator was formed", failed - 1);
		if (atomic_load(&c->aborted) != 0)
			return ncclInternalError;
		futex_wait(&s->barrier.generation, generation);
	}
	return ncclSuccess;
}

static int set_up(struct comm *c)
{
	const struct sim_config *conf = simrocm_config();
	int rc = check_duplicates(c);
	if (rc != ncclSuccess)
		return rc;
	if (has_fault(c, FAULT_INIT_HANG))
		return wait_for_nobody(c);
	if (has_fault(c, FAULT_INIT_ABORT))
		fatal("fault init-abort: the process on GPU %d ends in ncclCommInitRank", c->ordinal);
	topology_compute(c);
	network_log(c);
	comm_gates(c);
	if (low_precision_at_init()) {
		int64_t bytes = low_precision_pool_bytes(c->ranks, 0);
		if (simrocm_reserve(c->device, bytes) != hipSuccess)
			return fail(ncclUnhandledCudaError, "low precision pool of %lld bytes: out of memory", (long long)bytes);
		c->reserved_bytes += bytes;
		c->pool_elements = (int64_t)128 << 20;
	}
	info(LOG_INIT, "comm %p rank %d nRanks %d nNodes %d localRanks %d busId %s - SIMULATED - Init COMPLETE", (void *)c, c->rank, c->ranks,
		c->topology.nodes, c->topology.local_ranks, conf->pci[c->ordinal]);
	return ncclSuccess;
}

static int initialise(struct comm *c)
{
	int rc = network_choice()->result;
	if (rc == ncclSuccess)
		rc = attach(c);
	if (rc == ncclSuccess)
		rc = all_ready(c, set_up(c));
	if (rc == ncclSuccess && c->rank == 0)
		banner();
	if (c->infos != NULL)
		atomic_store(&c->infos[c->rank].init_state, rc);
	atomic_store(&c->result, rc);
	return rc;
}

static void free_comm(struct comm *c)
{
	if (c->reserved_bytes > 0)
		simrocm_unreserve(c->device, c->reserved_bytes);
	ras_leave(c);
	segment_detach(c);
	pthread_mutex_destroy(&c->mu);
	pthread_cond_destroy(&c->changed);
	free(c->sent);
	free(c->received);
	free(c->sent_last);
	free(c->received_last);
	c->magic = 0;
	free(c);
}

int init_rank(void **out, int ranks, const struct unique_id *id, int rank, bool blocking)
{
	if (out == NULL || id == NULL)
		return fail(ncclInvalidArgument, "ncclCommInitRank: NULL argument");
	*out = NULL;
	int rc = check_preconditions();
	if (rc != ncclSuccess)
		return rc;
	if (ranks < 1 || ranks > MAX_RANKS || rank < 0 || rank >= ranks)
		return fail(ncclInvalidArgument, "ncclCommInitRank: invalid rank requested : %d/%d", rank, ranks);
	uint64_t magic = COMM_MAGIC;
	if (memcmp(id->internal, &magic, sizeof magic) != 0 || memchr(id->internal + 8, 0, 64) == NULL)
		return fail(ncclInvalidArgument, "ncclCommInitRank: the unique id was not made by ncclGetUniqueId of this library");
	struct comm *c = calloc(1, sizeof *c);
	if (c == NULL)
		return ncclSystemError;
	size_t n = (size_t)ranks;
	c->magic = COMM_MAGIC;
	c->rank = rank;
	c->ranks = ranks;
	c->blocking = blocking;
	c->device = simrocm_current_device();
	c->ordinal = simrocm_config()->visible[c->device];
	c->result = ncclInProgress;
	snprintf(c->name, sizeof c->name, "%s", id->internal + 8);
	c->rooted = id->internal[ROOTED_AT] != 0;
	pthread_mutex_init(&c->mu, NULL);
	pthread_cond_init(&c->changed, NULL);
	c->sent = calloc(n, sizeof *c->sent);
	c->received = calloc(n, sizeof *c->received);
	c->sent_last = calloc(n, sizeof *c->sent_last);
	c->received_last = calloc(n, sizeof *c->received_last);
	if (c->sent == NULL || c->received == NULL || c->sent_last == NULL || c->received_last == NULL) {
		free_comm(c);
		return ncclSystemError;
	}
	*out = c;
	rc = submit_init(c, initialise);
	if (rc != ncclSuccess && rc != ncclInProgress) {
		*out = NULL;
		free_comm(c);
	}
	return rc;
}

SIM_API int ncclGetUniqueId(struct unique_id *out)
{
	if (out == NULL)
		return fail(ncclInvalidArgument, "ncclGetUniqueId: NULL argument");
	int rc = check_preconditions();
	if (rc != ncclSuccess)
		return rc;
	rc = bootstrap_result();
	if (rc != ncclSuccess)
		return rc;
	sweep_segments();
	uint64_t magic = COMM_MAGIC;
	const char *shared = getenv("NCCL_COMM_ID");
	memset(out, 0, sizeof *out);
	memcpy(out->internal, &magic, sizeof magic);
	bool rooted = shared == NULL || shared[0] == 0;
	new_name(out->internal + 8, ROOTED_AT - 8, rooted ? NULL : shared);
	out->internal[ROOTED_AT] = rooted;
	return rooted ? segment_root(out->internal + 8) : ncclSuccess;
}

/* comm_release ends a communicator. wait: for the operations that were queued; else the caller has aborted them. */
int comm_release(struct comm *c, bool wait)
{
	_Atomic uint32_t never = 0;
	ras_flag(c, wait ? RAS_DESTROY : RAS_ABORT);
	while (wait && has_fault(c, FAULT_DESTROY_HANG))
		futex_wait(&never, 0);
	pthread_mutex_lock(&c->mu);
	while (c->pending > 0 && (wait || atomic_load(&c->unabortable) == 0))
		pthread_cond_wait(&c->changed, &c->mu);
	bool busy = c->pending > 0;
	pthread_mutex_unlock(&c->mu);
	/* A DDA kernel cannot be aborted, and an unfinished initialisation still uses the memory: leave both alone. */
	if (busy || atomic_load(&c->result) == ncclInProgress)
		return ncclSuccess;
	free_comm(c);
	return ncclSuccess;
}
