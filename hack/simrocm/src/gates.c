/* gates.c - which path a call takes. The rules are those of the imitated flavor, read from its source:
 * RCCLX (torchcomms comms/rcclx/develop): meta/algorithms/AlgoInit.h, common/algorithms/all_reduce, src/collectives.cc,
 * meta/lpcoll/low_precision_common.h. Low precision is tried first, then DDA, then the standard path.
 * An open-source build of RCCLX uses DDA for AllReduce only (the other call sites are under BUILD_META_INTERNAL), and
 * the stable snapshot built at that commit never does. AMD's RCCL: RCCL_DDA_ENABLE, exactly 8 ranks on one node. */
#define _GNU_SOURCE
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rccl.h"

#define LOW_PRECISION_MIN_BYTES ((uint64_t)16 << 20)
#define POOL_ELEMENTS ((int64_t)128 << 20)
#define AMD_DDA_THRESHOLD_BYTES ((int64_t)64 << 20)

/* load_configuration_file reads $NCCL_CONF_FILE, else ~/.rccl.conf, else /etc/rccl.conf; the environment wins. */
void load_configuration_file(void)
{
	char path[PATH_MAX], line[1024];
	FILE *f = NULL;
	const char *named = getenv("NCCL_CONF_FILE"), *home = getenv("HOME");
	if (named != NULL)
		f = fopen(named, "re");
	if (named == NULL && home != NULL) {
		snprintf(path, sizeof path, "%s/.rccl.conf", home);
		f = fopen(path, "re");
	}
	if (named == NULL && f == NULL)
		f = fopen("/etc/rccl.conf", "re");
	if (f == NULL)
		return;
	while (fgets(line, sizeof line, f) != NULL) {
		line[strcspn(line, "\r\n")] = 0;
		char *equals = strchr(line, '=');
		if (line[0] == '#' || equals == NULL)
			continue;
		*equals = 0;
		setenv(line, equals + 1, 0);
	}
	fclose(f);
}

/* RCCL_PARAM: read once a process, strtoll with any base; text that is no number is 0. */
int64_t param(const char *name, int64_t otherwise)
{
	const char *v = getenv(name);
	return v == NULL || v[0] == 0 ? otherwise : strtoll(v, NULL, 0);
}

static struct {
	int64_t ranks, all_reduce, any, flat_bytes, tree_bytes, staging_bytes;
	bool amd_enabled;
	int64_t amd_threshold_bytes;
} params;
static pthread_once_t params_once = PTHREAD_ONCE_INIT;

static void read_params(void)
{
	params.ranks = param("RCCL_DDA_NRANKS", 8);
	params.all_reduce = param("RCCL_ENABLE_DDA_ALL_REDUCE", 1);
	params.any = params.all_reduce | param("RCCL_ENABLE_DDA_ALL_GATHER", 1) | param("RCCL_ENABLE_DDA_REDUCE_SCATTER", 1) |
		param("RCCL_ENABLE_DDA_ALL_TO_ALL", 1);
	params.flat_bytes = param("RCCL_DDA_ALL_REDUCE_FLAT_MAX_BYTES", 204800);
	params.tree_bytes = param("RCCL_DDA_ALL_REDUCE_TREE_MAX_BYTES", 30408704);
	params.staging_bytes = (int32_t)param("RCCL_DDA_SENDBUF_BYTES", 33554432);
	params.amd_enabled = param("RCCL_DDA_ENABLE", 1) != 0;
	params.amd_threshold_bytes = param("RCCL_DDA_THRESHOLD", -1);
	if (params.amd_threshold_bytes < 0)
		params.amd_threshold_bytes = AMD_DDA_THRESHOLD_BYTES;
}

/* check_preconditions is what ncclInit demands of the host (src/init.cc:223, src/rccl_wrap.cc:825). The simulated node
 * has firmware older than MEC 177, so the variable is mandatory whatever the HIP version. */
int check_preconditions(void)
{
	const struct sim_config *c = simrocm_config();
	if (c->problem[0] != 0)
		return fail(ncclSystemError, "%s", c->problem);
	const char *v = getenv("HSA_NO_SCRATCH_RECLAIM");
	if (v == NULL || strcmp(v, "1") != 0)
		return fail(ncclSystemError, "HSA_NO_SCRATCH_RECLAIM=1 must be set to avoid RCCL perf hit, rocm ver:%d", c->hip_runtime_version);
	if (c->visible_count == 0)
		return fail(ncclUnhandledCudaError, "no ROCm-capable device is detected");
	return ncclSuccess;
}

static bool one_process(const struct comm *c)
{
	for (int r = 0; r < c->ranks; r++)
		if (r != c->rank && c->infos[r].process == c->infos[c->rank].process)
			return true;
	return false;
}

/* dda_of_rcclx sets DDA up, with the library's fatal checks: AlgoFactory.cu enables peer access to the ordinals
 * 0..n-1 but its own rank, and checks.h makes any other answer of HIP fatal; IpcGpuBarrier.cuh asserts 8 ranks. */
static void dda_of_rcclx(struct comm *c)
{
	const struct sim_config *conf = simrocm_config();
	if (c->topology.nodes != 1) {
		info(LOG_INIT, "Disabling DDA for multi-node setup (nNodes=%d)", c->topology.nodes);
		return;
	}
	if (c->ranks != params.ranks) {
		info(LOG_INIT, "Disabling DDA for single-node when nRanks != %lld setup (nRanks=%d)", (long long)params.ranks, c->ranks);
		return;
	}
	if (params.any == 0)
		return;
	if (c->ranks != 8)
		fatal("IpcGpuBarrier.cuh: Assertion `nRanks == 8' failed (RCCL_DDA_NRANKS=%lld)", (long long)params.ranks);
	for (int i = 0; i < c->ranks; i++)
		if (i != c->rank && (i == c->device || i >= conf->visible_count))
			fatal("AlgoFactory.cu: hipDeviceEnablePeerAccess(%d, 0) failed: invalid device ordinal (rank %d is on device %d "
				"and sees %d devices; DDA needs rank r on device r with all 8 visible, or RCCL_DDA_NRANKS=0)",
				i, c->rank, c->device, conf->visible_count);
	if (one_process(c))
		fatal("IpcMemHandler.cc: hipIpcOpenMemHandle failed: invalid device context (two ranks in one process; DDA needs one "
			"process a GPU, or RCCL_DDA_NRANKS=0)");
	if (simrocm_reserve(c->device, params.staging_bytes) != hipSuccess)
		fatal("AlgoFactory.cu: hipMalloc of %lld bytes failed: out of memory", (long long)params.staging_bytes);
	c->reserved_bytes += params.staging_bytes;
	c->dda = params.all_reduce != 0;
}

static void dda_of_amd(struct comm *c)
{
	const char *gfx = simrocm_config()->model->gfx;
	if (!params.amd_enabled || (strcmp(gfx, "gfx942") != 0 && strcmp(gfx, "gfx950") != 0) || c->topology.nodes != 1 || c->ranks != 8)
		return;
	if (one_process(c)) {
		warn("DDA disabled: it needs one process per GPU");
		return;
	}
	c->dda = true;
}

void comm_gates(struct comm *c)
{
	pthread_once(&params_once, read_params);
	if (simrocm_config()->flavor == FLAVOR_RCCLX_DEV)
		dda_of_rcclx(c);
	else if (simrocm_config()->flavor == FLAVOR_RCCL_DDA)
		dda_of_amd(c);
}

/* Exactly "1" turns a variable on; read at every call (low_precision_common.h). */
static bool is_one(const char *name)
{
	const char *v = getenv(name);
	return v != NULL && strcmp(v, "1") == 0;
}

static bool is_rcclx(void)
{
	enum sim_flavor f = simrocm_config()->flavor;
	return f == FLAVOR_RCCLX_DEV || f == FLAVOR_RCCLX_STABLE;
}

static bool low_precision(enum coll coll)
{
	if (!is_rcclx() || !simrocm_config()->model->fp8)
		return false;
	if (is_one("RCCL_LOW_PRECISION_ENABLE"))
		return coll != COLL_REDUCE && coll != COLL_BROADCAST;
	if (simrocm_config()->flavor != FLAVOR_RCCLX_DEV)
		return false;
	switch (coll) {
	case COLL_ALLREDUCE: return is_one("RCCL_LOW_PRECISION_ENABLE_ALLREDUCE");
	case COLL_ALLGATHER: return is_one("RCCL_LOW_PRECISION_ENABLE_ALLGATHER");
	case COLL_REDUCESCATTER: return is_one("RCCL_LOW_PRECISION_ENABLE_REDUCESCATTER");
	case COLL_ALLTOALL: return is_one("RCCL_LOW_PRECISION_ENABLE_ALLTOALL");
	default: return false;
	}
}

bool low_precision_at_init(void)
{
	if (simrocm_config()->flavor == FLAVOR_RCCLX_DEV && is_one("RCCL_LOW_PRECISION_ENABLE_INIT"))
		return true;
	return low_precision(COLL_ALLREDUCE) || low_precision(COLL_ALLGATHER) || low_precision(COLL_REDUCESCATTER) ||
		low_precision(COLL_ALLTOALL);
}

/* Pool of 128 Mi elements * (10 + max(8, nRanks)) bytes a communicator; doubles until a call fits. */
int64_t low_precision_pool_bytes(int ranks, int64_t elements)
{
	int64_t pool = POOL_ELEMENTS;
	while (pool < elements)
		pool *= 2;
	return pool * (10 + (ranks > 8 ? ranks : 8));
}

static bool dda_dtype(int dtype) { return dtype == ncclFloat32 || dtype == ncclFloat16 || dtype == ncclBfloat16; }

static bool aligned(const void *send, const void *recv, uint64_t bytes)
{
	return (uintptr_t)send % 16 == 0 && (uintptr_t)recv % 16 == 0 && bytes % 16 == 0;
}

static enum path dda_path_rcclx(const struct comm *c, const void *send, const void *recv, size_t count, uint64_t element)
{
	uint64_t bytes = count * element, ranks = (uint64_t)c->ranks;
	if ((int64_t)bytes > params.staging_bytes || !aligned(send, recv, bytes))
		return PATH_STANDARD;
	if ((int64_t)bytes <= params.flat_bytes)
		return PATH_DDA_FLAT;
	if ((int64_t)bytes > params.tree_bytes || count % ranks != 0 || count / ranks * element % 16 != 0)
		return PATH_STANDARD;
	return PATH_DDA_TREE;
}

/* AMD's RCCL has DDA for all four collectives, up to a limit from a table by architecture and release. We take one limit
 * for all: that of the release before the table. */
static enum path dda_path_amd(const void *send, const void *recv, uint64_t bytes, enum coll coll)
{
	if (group_depth() > 0 || (int64_t)bytes > params.amd_threshold_bytes || !aligned(send, recv, bytes))
		return PATH_STANDARD;
	return coll != COLL_ALLREDUCE || bytes <= 204800 ? PATH_DDA_FLAT : PATH_DDA_TREE;
}

static enum path dda_path(const struct comm *c, enum coll coll, const void *send, const void *recv, size_t count, int dtype, int redop)
{
	uint64_t element = dtype_bytes(dtype);
	bool reduces = coll == COLL_ALLREDUCE || coll == COLL_REDUCESCATTER;
	if (!c->dda || !dda_dtype(dtype) || (reduces && redop != ncclSum) || coll == COLL_REDUCE || coll == COLL_BROADCAST)
		return PATH_STANDARD;
	if (simrocm_config()->flavor == FLAVOR_RCCL_DDA)
		return dda_path_amd(send, recv, count * element * (coll == COLL_ALLREDUCE ? 1 : (uint64_t)c->ranks), coll);
	return coll == COLL_ALLREDUCE ? dda_path_rcclx(c, send, recv, count, element) : PATH_STANDARD;
}

enum path choose_path(struct comm *c, enum coll coll, const void *send, const void *recv, size_t count, int dtype, int redop)
{
	if (low_precision(coll)) {
		uint64_t bytes = count * dtype_bytes(dtype);
		if (coll != COLL_ALLREDUCE)
			bytes *= (uint64_t)c->ranks;
		bool reduces = coll == COLL_ALLREDUCE || coll == COLL_REDUCESCATTER;
		if ((dtype == ncclFloat32 || dtype == ncclBfloat16) && bytes >= LOW_PRECISION_MIN_BYTES && (!reduces || redop == ncclSum))
			return PATH_LOW_PRECISION;
		if (coll == COLL_ALLGATHER)
			return PATH_P2P_ALLGATHER;
	}
	return dda_path(c, coll, send, recv, count, dtype, redop);
}

/* RCCLX launches DDA at once, also between ncclGroupStart and ncclGroupEnd. */
bool launches_inside_group(enum path path)
{
	return simrocm_config()->flavor == FLAVOR_RCCLX_DEV && (path == PATH_DDA_FLAT || path == PATH_DDA_TREE);
}
