/* nccl.c - the C ABI of librccl.so.1: arguments, messages, and the two symbols that say what this library is. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>

#include "rccl.h"

int version_code(void)
{
	switch (simrocm_config()->flavor) {
	case FLAVOR_RCCL: return 22606;
	case FLAVOR_RCCL_DDA: return 23004;
	case FLAVOR_RCCLX_STABLE: return 22707;
	default: return 22803;
	}
}

__attribute__((constructor)) static void loaded(void)
{
	load_configuration_file();
	const struct sim_config *c = simrocm_config();
	if (c->faulty[FAULT_MISSING_SYMBOL] != 0 && strncmp(c->fault_symbol, "nccl", 4) == 0)
		simrocm_hide_symbol((const void *)last_error_text, c->fault_symbol);
}

SIM_API int simrocmVersion(void) { return SIM_VERSION; }
SIM_API const char *simrocmImitates(void) { return simrocm_flavor_name(simrocm_config()->flavor); }

SIM_API int ncclGetVersion(int *version)
{
	if (version == NULL)
		return fail(ncclInvalidArgument, "ncclGetVersion: NULL argument");
	const struct sim_config *c = simrocm_config();
	*version = c->faulty[FAULT_GARBAGE_VERSION] != 0 ? c->fault_version : version_code();
	return ncclSuccess;
}

SIM_API const char *ncclGetErrorString(int result)
{
	switch (result) {
	case ncclSuccess: return "no error";
	case ncclUnhandledCudaError: return "unhandled cuda error (run with NCCL_DEBUG=INFO for details)";
	case ncclSystemError: return "unhandled system error (run with NCCL_DEBUG=INFO for details)";
	case ncclInternalError: return "internal error - please report this issue to the NCCL developers";
	case ncclInvalidArgument: return "invalid argument (run with NCCL_DEBUG=WARN for details)";
	case ncclInvalidUsage: return "invalid usage (run with NCCL_DEBUG=WARN for details)";
	case ncclRemoteError: return "remote process exited or there was a network error";
	case ncclInProgress: return "NCCL operation in progress";
	default: return "unknown result code";
	}
}

SIM_API const char *ncclGetLastError(void *comm)
{
	(void)comm;
	return last_error_text();
}

/* ncclConfig_t: the head that all versions share. */
struct config_head {
	size_t size;
	uint32_t magic, version;
	int32_t blocking;
};

static int init_config(void **comm, int ranks, const struct unique_id *id, int rank, const struct config_head *config)
{
	bool blocking = true;
	if (config != NULL) {
		if (config->magic != 0xcafebeef)
			return fail(ncclInvalidArgument, "ncclConfig_t argument not initialized via NCCL_CONFIG_INITIALIZER");
		if (config->size >= offsetof(struct config_head, blocking) + 4 && config->blocking == 0)
			blocking = false;
	}
	const char *v = getenv("NCCL_COMM_BLOCKING");
	if (v != NULL && v[0] != 0)
		blocking = strtoll(v, NULL, 0) != 0;
	return init_rank(comm, ranks, id, rank, blocking);
}

SIM_API int ncclCommInitRank(void **comm, int ranks, struct unique_id id, int rank)
{
	return init_config(comm, ranks, &id, rank, NULL);
}

SIM_API int ncclCommInitRankConfig(void **comm, int ranks, struct unique_id id, int rank, const void *config)
{
	return init_config(comm, ranks, &id, rank, config);
}

SIM_API int ncclCommInitRankScalable(void **comm, int ranks, int rank, int ids, const struct unique_id *id, const void *config)
{
	if (ids < 1 || ids > ranks)
		return fail(ncclInvalidArgument, "ncclCommInitRankScalable: %d unique ids for %d ranks", ids, ranks);
	return init_config(comm, ranks, id, rank, config);
}

int ncclGetUniqueId(struct unique_id *out);
int ncclGroupStart(void);
int ncclGroupEnd(void);
int hipSetDevice(int device);

SIM_API int ncclCommInitAll(void **comms, int devices, const int *list)
{
	struct unique_id id;
	if (comms == NULL || devices < 1)
		return fail(ncclInvalidArgument, "ncclCommInitAll: invalid argument");
	int before = simrocm_current_device(), rc = ncclGetUniqueId(&id);
	if (rc != ncclSuccess)
		return rc;
	ncclGroupStart();
	for (int i = 0; i < devices && rc == ncclSuccess; i++) {
		if (hipSetDevice(list != NULL ? list[i] : i) != hipSuccess)
			rc = fail(ncclInvalidArgument, "ncclCommInitAll: invalid device %d", list != NULL ? list[i] : i);
		else
			rc = init_rank(&comms[i], devices, &id, i, true);
	}
	hipSetDevice(before);
	int end = rc == ncclSuccess ? ncclGroupEnd() : rc;
	return end;
}

static struct comm *ready(void *handle, const char *call, int *rc)
{
	struct comm *c = checked_comm(handle);
	*rc = ncclSuccess;
	if (c == NULL)
		*rc = fail(ncclInvalidArgument, "%s: invalid communicator", call);
	else if (atomic_load(&c->result) == ncclInProgress)
		*rc = fail(ncclInvalidArgument, "%s: the communicator is still being formed", call);
	else if (atomic_load(&c->aborted) != 0)
		*rc = fail(ncclInvalidUsage, "%s: the communicator was aborted", call);
	return *rc == ncclSuccess ? c : NULL;
}

#define QUERY(name, value)                                                                                             \
	SIM_API int name(void *comm, int *out)                                                                             \
	{                                                                                                                  \
		int rc;                                                                                                        \
		const struct comm *c = ready(comm, #name, &rc);                                                                \
		if (c != NULL && out == NULL)                                                                                  \
			return fail(ncclInvalidArgument, #name ": NULL argument");                                                 \
		if (c != NULL)                                                                                                 \
			*out = value;                                                                                              \
		return rc;                                                                                                     \
	}
QUERY(ncclCommCount, c->ranks)
QUERY(ncclCommUserRank, c->rank)
QUERY(ncclCommCuDevice, c->device)

SIM_API int ncclCommGetAsyncError(void *comm, int *out)
{
	struct comm *c = checked_comm(comm);
	if (c == NULL || out == NULL)
		return fail(ncclInvalidArgument, "ncclCommGetAsyncError: invalid argument");
	*out = atomic_load(&c->result);
	return ncclSuccess;
}

SIM_API int ncclCommFinalize(void *comm)
{
	int rc;
	struct comm *c = ready(comm, "ncclCommFinalize", &rc);
	if (c == NULL)
		return rc;
	ras_flag(c, RAS_FINALIZE);
	pthread_mutex_lock(&c->mu);
	while (c->pending > 0)
		pthread_cond_wait(&c->changed, &c->mu);
	pthread_mutex_unlock(&c->mu);
	return ncclSuccess;
}

SIM_API int ncclCommDestroy(void *comm)
{
	struct comm *c = checked_comm(comm);
	if (c == NULL)
		return comm == NULL ? ncclSuccess : fail(ncclInvalidArgument, "ncclCommDestroy: invalid communicator");
	return comm_release(c, true);
}

SIM_API int ncclCommAbort(void *comm)
{
	struct comm *c = checked_comm(comm);
	if (c == NULL)
		return comm == NULL ? ncclSuccess : fail(ncclInvalidArgument, "ncclCommAbort: invalid communicator");
	atomic_store(&c->aborted, 1);
	return comm_release(c, false);
}

static int grow_pool(struct comm *c, size_t elements)
{
	int64_t have = c->pool_elements > 0 ? low_precision_pool_bytes(c->ranks, c->pool_elements) : 0;
	int64_t want = low_precision_pool_bytes(c->ranks, (int64_t)elements);
	if (want <= have)
		return ncclSuccess;
	if (simrocm_reserve(c->device, want - have) != hipSuccess)
		return fail(ncclUnhandledCudaError, "low precision pool of %lld bytes: out of memory", (long long)want);
	c->reserved_bytes += want - have;
	c->pool_elements = want / (10 + (c->ranks > 8 ? c->ranks : 8));
	return ncclSuccess;
}

static int start(const char *call, enum coll coll, const void *send, void *recv, size_t count, int dtype, int redop, int root,
	void *comm, void *stream)
{
	int rc;
	struct comm *c = ready(comm, call, &rc);
	if (c == NULL)
		return rc;
	bool reduces = coll == COLL_ALLREDUCE || coll == COLL_REDUCE || coll == COLL_REDUCESCATTER;
	if (dtype_bytes(dtype) == 0)
		return fail(ncclInvalidArgument, "%s: invalid type %d", call, dtype);
	if (reduces && (redop < 0 || redop >= ncclNumOps))
		return fail(ncclInvalidArgument, "%s: invalid reduction operation %d", call, redop);
	if (root < 0 || root >= c->ranks)
		return fail(ncclInvalidArgument, "%s: invalid root %d", call, root);
	if (count == 0)
		return ncclSuccess;
	bool needs_send = coll != COLL_BROADCAST || root == c->rank, needs_recv = coll != COLL_REDUCE || root == c->rank;
	if ((needs_send && send == NULL) || (needs_recv && recv == NULL))
		return fail(ncclInvalidArgument, "%s: NULL buffer", call);
	enum path path = choose_path(c, coll, send, recv, count, dtype, redop);
	if (path == PATH_LOW_PRECISION) {
		rc = grow_pool(c, coll == COLL_ALLREDUCE ? count : count * (size_t)c->ranks);
		if (rc != ncclSuccess)
			return rc;
	}
	struct op op = {.comm = c, .coll = coll, .path = path, .send = send, .recv = recv, .count = count, .dtype = dtype,
		.redop = reduces ? redop : 0, .root = root, .stream = simrocm_stream(stream)};
	return submit_op(&op);
}

SIM_API int ncclAllReduce(const void *send, void *recv, size_t count, int dtype, int redop, void *comm, void *stream)
{
	return start("AllReduce", COLL_ALLREDUCE, send, recv, count, dtype, redop, 0, comm, stream);
}

SIM_API int ncclReduce(const void *send, void *recv, size_t count, int dtype, int redop, int root, void *comm, void *stream)
{
	return start("Reduce", COLL_REDUCE, send, recv, count, dtype, redop, root, comm, stream);
}

SIM_API int ncclReduceScatter(const void *send, void *recv, size_t count, int dtype, int redop, void *comm, void *stream)
{
	return start("ReduceScatter", COLL_REDUCESCATTER, send, recv, count, dtype, redop, 0, comm, stream);
}

SIM_API int ncclAllGather(const void *send, void *recv, size_t count, int dtype, void *comm, void *stream)
{
	return start("AllGather", COLL_ALLGATHER, send, recv, count, dtype, 0, 0, comm, stream);
}

SIM_API int ncclBroadcast(const void *send, void *recv, size_t count, int dtype, int root, void *comm, void *stream)
{
	return start("Broadcast", COLL_BROADCAST, send, recv, count, dtype, 0, root, comm, stream);
}

SIM_API int ncclBcast(void *buffer, size_t count, int dtype, int root, void *comm, void *stream)
{
	return start("Broadcast", COLL_BROADCAST, buffer, buffer, count, dtype, 0, root, comm, stream);
}

SIM_API int ncclAlltoAll(const void *send, void *recv, size_t count, int dtype, void *comm, void *stream)
{
	return start("AlltoAll", COLL_ALLTOALL, send, recv, count, dtype, 0, 0, comm, stream);
}

SIM_API int ncclAllToAll(const void *send, void *recv, size_t count, int dtype, void *comm, void *stream)
{
	return start("AllToAll", COLL_ALLTOALL, send, recv, count, dtype, 0, 0, comm, stream);
}

static int message(const char *call, bool send, void *buffer, size_t count, int dtype, int peer, void *comm, void *stream)
{
	int rc;
	struct comm *c = ready(comm, call, &rc);
	if (c == NULL)
		return rc;
	if (dtype_bytes(dtype) == 0 || (buffer == NULL && count > 0))
		return fail(ncclInvalidArgument, "%s: invalid type %d or NULL buffer", call, dtype);
	if (peer < 0 || peer >= c->ranks)
		return fail(ncclInvalidArgument, "%s: invalid peer %d", call, peer);
	if (count == 0)
		return ncclSuccess;
	struct message m = {.comm = c, .send = send, .buffer = buffer, .bytes = count * dtype_bytes(dtype), .peer = peer,
		.dtype = dtype, .stream = simrocm_stream(stream)};
	return submit_message(&m);
}

SIM_API int ncclSend(const void *buffer, size_t count, int dtype, int peer, void *comm, void *stream)
{
	return message("Send", true, (void *)(uintptr_t)buffer, count, dtype, peer, comm, stream);
}

SIM_API int ncclRecv(void *buffer, size_t count, int dtype, int peer, void *comm, void *stream)
{
	return message("Recv", false, buffer, count, dtype, peer, comm, stream);
}

/* A group of sends and receives, as in the library (src/collectives.cc ncclAlltoAllv_impl). */
static int all_to_all_v(const char *send, const size_t *send_counts, const size_t *send_at, char *recv, const size_t *recv_counts,
	const size_t *recv_at, int dtype, void *comm, void *stream)
{
	int rc;
	struct comm *c = ready(comm, "AlltoAllv", &rc);
	if (c == NULL)
		return rc;
	if (send_counts == NULL || send_at == NULL || recv_counts == NULL || recv_at == NULL)
		return fail(ncclInvalidArgument, "AlltoAllv: NULL counts or displacements");
	size_t element = dtype_bytes(dtype);
	ncclGroupStart();
	for (int r = 0; r < c->ranks && rc == ncclSuccess; r++) {
		rc = ncclSend(send + send_at[r] * element, send_counts[r], dtype, r, comm, stream);
		if (rc == ncclSuccess)
			rc = ncclRecv(recv + recv_at[r] * element, recv_counts[r], dtype, r, comm, stream);
	}
	int end = ncclGroupEnd();
	return rc != ncclSuccess ? rc : end;
}

SIM_API int ncclAlltoAllv(const void *send, const size_t *send_counts, const size_t *send_at, void *recv, const size_t *recv_counts,
	const size_t *recv_at, int dtype, void *comm, void *stream)
{
	return all_to_all_v(send, send_counts, send_at, recv, recv_counts, recv_at, dtype, comm, stream);
}

SIM_API int ncclAllToAllv(const void *send, const size_t *send_counts, const size_t *send_at, void *recv, const size_t *recv_counts,
	const size_t *recv_at, int dtype, void *comm, void *stream)
{
	return all_to_all_v(send, send_counts, send_at, recv, recv_counts, recv_at, dtype, comm, stream);
}
