/* config.c - the simulated node: product table, simrocm.conf, visible devices, links and faults. */
#define _GNU_SOURCE
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core.h"

#define GIB ((int64_t)1 << 30)

/* Bandwidth sources are in model.h. */
static const struct sim_model models[] = {
	/* name     hipDeviceGetName           gfx      gpus memory  hive link   eff  ring    cross  ocp    fp8 */
	{"MI300X", "AMD Instinct MI300X", "gfx942", 8, 192 * GIB, 8, 48000, 964, 0, 24000, false, true},
	{"MI308X", "AMD Instinct MI308X", "gfx942", 8, 192 * GIB, 8, 48000, 964, 0, 24000, false, true},
	{"MI325X", "AMD Instinct MI325X", "gfx942", 8, 256 * GIB, 8, 48000, 964, 0, 24000, false, true},
	{"MI300A", "AMD Instinct MI300A", "gfx942", 4, 128 * GIB, 4, 96000, 810, 0, 24000, false, true},
	{"MI350X", "AMD Instinct MI350X", "gfx950", 8, 288 * GIB, 8, 55000, 964, 0, 24000, true, true},
	{"MI355X", "AMD Instinct MI355X", "gfx950", 8, 288 * GIB, 8, 55000, 964, 0, 24000, true, true},
	{"MI350P", "AMD Instinct MI350P", "gfx950", 8, 144 * GIB, 1, 24000, 964, 0, 24000, true, true},
	{"MI450X", "AMD Instinct MI450X", "gfx1250", 8, 432 * GIB, 8, 55000, 964, 0, 24000, true, true},
	{"MI300X VF", "AMD Instinct MI300X VF", "gfx942", 8, 192 * GIB, 8, 48000, 964, 0, 24000, false, true},
	{"MI308X VF", "AMD Instinct MI308X VF", "gfx942", 8, 192 * GIB, 8, 48000, 964, 0, 24000, false, true},
	{"MI325X VF", "AMD Instinct MI325X VF", "gfx942", 8, 256 * GIB, 8, 48000, 964, 0, 24000, false, true},
	{"MI350X VF", "AMD Instinct MI350X VF", "gfx950", 8, 288 * GIB, 8, 55000, 964, 0, 24000, true, true},
	{"MI355X VF", "AMD Instinct MI355X VF", "gfx950", 8, 288 * GIB, 8, 55000, 964, 0, 24000, true, true},
	{"MI350P VF", "AMD Instinct MI350P VF", "gfx950", 8, 144 * GIB, 1, 24000, 964, 0, 24000, true, true},
	{"MI250", "AMD Instinct MI250", "gfx90a", 16, 64 * GIB, 0, 36000, 1000, 132000, 20000, false, false},
	{"MI250X", "AMD Instinct MI250X", "gfx90a", 8, 64 * GIB, 0, 36000, 1000, 132000, 20000, false, false},
	{"MI210", "AMD Instinct MI210", "gfx90a", 8, 64 * GIB, 4, 36000, 320, 34500, 9000, false, false},
	{"MI100", "AMD Instinct MI100", "gfx908", 8, 32 * GIB, 4, 33000, 320, 31500, 8000, false, false},
};

static const char *const mi300x_pci[8] = {"0000:05:00.0", "0000:2b:00.0", "0000:5b:00.0", "0000:65:00.0",
	"0000:7d:00.0", "0000:a5:00.0", "0000:d5:00.0", "0000:e7:00.0"};

static struct sim_config cfg;
static pthread_once_t once = PTHREAD_ONCE_INIT;

const char *simrocm_flavor_name(enum sim_flavor f)
{
	switch (f) {
	case FLAVOR_RCCL: return "rccl";
	case FLAVOR_RCCL_DDA: return "rccl-dda";
	case FLAVOR_RCCLX_STABLE: return "rcclx-stable";
	default: return "rcclx-dev";
	}
}

static void problem(const char *what, const char *value)
{
	if (cfg.problem[0] == 0)
		snprintf(cfg.problem, sizeof cfg.problem, "simrocm.conf: %s: %.80s", what, value);
}

static char *trim(char *s)
{
	while (*s == ' ' || *s == '\t')
		s++;
	char *end = s + strlen(s);
	while (end > s && strchr(" \t\r\n", end[-1]) != NULL)
		*--end = 0;
	return s;
}

static bool parse_number(const char *text, int64_t *out)
{
	char *end;
	errno = 0;
	long long v = strtoll(text, &end, 10);
	if (end == text || *end != 0 || errno != 0)
		return false;
	*out = v;
	return true;
}

static void read_line(const char *root, const char *relative, char *out, size_t size)
{
	char path[PATH_MAX];
	snprintf(path, sizeof path, "%s/%s", root, relative);
	FILE *f = fopen(path, "re");
	if (f == NULL)
		return;
	char line[256];
	if (fgets(line, sizeof line, f) != NULL)
		snprintf(out, size, "%.*s", (int)size - 1, trim(line));
	fclose(f);
}

/* A link key is "link.A-B = MBPS", "pcie" or "none": one pair that differs from the product's links. */
static void apply_link(const char *pair, const char *value)
{
	int a, b;
	int64_t mbps;
	if (sscanf(pair, "%d-%d", &a, &b) != 2 || a < 0 || b < 0 || a >= SIM_MAX_GPUS || b >= SIM_MAX_GPUS || a == b) {
		problem("link is not link.A-B", pair);
		return;
	}
	uint8_t kind = SIM_LINK_XGMI;
	if (strcmp(value, "pcie") == 0) {
		kind = SIM_LINK_PCIE;
		mbps = cfg.model->cross_mbps;
	} else if (strcmp(value, "none") == 0) {
		kind = SIM_LINK_NONE;
		mbps = cfg.model->cross_mbps;
	} else if (!parse_number(value, &mbps) || mbps <= 0) {
		problem("link bandwidth is not a number of MB/s, pcie or none", value);
		return;
	}
	cfg.pair_kind[a][b] = cfg.pair_kind[b][a] = kind;
	cfg.pair_mbps[a][b] = cfg.pair_mbps[b][a] = mbps;
}

/* simple_fault gives the fault of a name that takes only a GPU, or nothing. */
static enum sim_fault simple_fault(const char *name, bool of_gpu)
{
	static const struct {
		const char *name;
		enum sim_fault fault;
		bool of_gpu;
	} known[] = {{"hang", FAULT_HANG, true}, {"wrong-data", FAULT_WRONG_DATA, true}, {"init-abort", FAULT_INIT_ABORT, true},
		{"init-hang", FAULT_INIT_HANG, true}, {"destroy-hang", FAULT_DESTROY_HANG, true}, {"segfault", FAULT_SEGFAULT, true},
		{"hang-across", FAULT_HANG_ACROSS, false}, {"die-across", FAULT_DIE_ACROSS, false},
		{"wrong-across", FAULT_WRONG_ACROSS, false}, {"no-rdma", FAULT_NO_RDMA, false}};
	for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
		if (strcmp(known[i].name, name) == 0 && known[i].of_gpu == of_gpu)
			return known[i].fault;
	return FAULT_NONE;
}

/* share_nic leaves a GPU's NIC, or with -1 every one, a share of its bandwidth. */
static void share_nic(int gpu, int percent)
{
	for (int i = 0; i < cfg.gpus; i++) {
		if (gpu >= 0 && i / cfg.partitions != gpu / cfg.partitions)
			continue;
		int64_t mbps = cfg.nic_mbps[i] * percent / 100;
		cfg.nic_mbps[i] = mbps > 0 ? mbps : 1;
	}
}

/* node_pair reads OTHERNODE:PERCENT, or OTHERNODE where the pair hangs. */
static bool node_pair(const char *arg, bool hangs)
{
	struct sim_node_pair *p = &cfg.node_pairs[cfg.node_pair_count];
	size_t len = strcspn(arg, ":");
	int64_t percent = 100;
	if (cfg.node_pair_count == SIM_MAX_NODE_PAIRS || len == 0 || len >= sizeof p->other || hangs != (arg[len] == 0))
		return false;
	if (!hangs && (!parse_number(arg + len + 1, &percent) || percent <= 0 || percent > 100))
		return false;
	*p = (struct sim_node_pair){.percent = (int)percent, .hangs = hangs};
	memcpy(p->other, arg, len);
	cfg.node_pair_count++;
	return true;
}

static void apply_fault(const char *value)
{
	int a, b, percent, end = 0;
	int64_t n = 0;
	char name[32] = "";
	if (strcmp(value, "none") == 0 || value[0] == 0)
		return;
	const char *colon = strchr(value, ':');
	const char *arg = colon != NULL ? colon + 1 : "";
	size_t len = colon != NULL ? (size_t)(colon - value) : strlen(value);
	if (len < sizeof name)
		memcpy(name, value, len);
	bool numeric = parse_number(arg, &n) && n >= 0;
	enum sim_fault fault = FAULT_NONE;
	uint64_t whose = ~(uint64_t)0;
#define IS(text) (strcmp(name, text) == 0)
	if (IS("slow-link") && sscanf(arg, "%d-%d:%d", &a, &b, &percent) == 3 && a >= 0 && b >= 0 && a < cfg.gpus &&
	    b < cfg.gpus && a != b && percent > 0) {
		fault = FAULT_SLOW_LINK;
		int64_t mbps = cfg.pair_mbps[a][b] * percent / 100;
		cfg.pair_mbps[a][b] = cfg.pair_mbps[b][a] = mbps > 0 ? mbps : 1;
	} else if (IS("late") && sscanf(arg, "%d:%d", &a, &b) == 2 && a >= 0 && a < cfg.gpus && b > 0) {
		fault = FAULT_LATE;
		cfg.fault_late_ms = b;
		whose = (uint64_t)1 << a;
	} else if (IS("slow-nic") && sscanf(arg, "%d:%d%n", &a, &percent, &end) == 2 && arg[end] == 0 && a >= 0 &&
	    a < cfg.gpus && percent > 0 && percent <= 100) {
		fault = FAULT_SLOW_NIC;
		share_nic(a, percent);
	} else if (IS("slow-node-net") && numeric && n > 0 && n <= 100) {
		fault = FAULT_SLOW_NODE_NET;
		share_nic(-1, (int)n);
	} else if (IS("slow-pair-nodes") && node_pair(arg, false)) {
		fault = FAULT_SLOW_PAIR;
	} else if (IS("hang-pair-nodes") && node_pair(arg, true)) {
		fault = FAULT_HANG_PAIR;
	} else if (IS("garbage-version") && parse_number(arg, &n)) {
		fault = FAULT_GARBAGE_VERSION;
		cfg.fault_version = (int)n;
	} else if (numeric && n < cfg.gpus && simple_fault(name, true) != FAULT_NONE) {
		fault = simple_fault(name, true);
		whose = (uint64_t)1 << n;
	} else if (colon == NULL && simple_fault(name, false) != FAULT_NONE) {
		fault = simple_fault(name, false);
	} else if (IS("low-memory") && numeric) {
		fault = FAULT_LOW_MEMORY;
		cfg.fault_memory_mib = n;
	} else if (IS("missing-symbol") && arg[0] != 0 && strlen(arg) < sizeof cfg.fault_symbol) {
		fault = FAULT_MISSING_SYMBOL;
		memcpy(cfg.fault_symbol, arg, strlen(arg) + 1);
	} else {
		problem("unknown fault", value);
	}
#undef IS
	cfg.faulty[fault] |= whose;
}

/* apply_faults takes a list with commas. */
static void apply_faults(const char *list)
{
	char copy[512], *rest = copy, *one;
	snprintf(copy, sizeof copy, "%s", list);
	while ((one = strsep(&rest, ",")) != NULL)
		apply_fault(trim(one));
}

struct pair {
	char key[64], value[512];
};

/* read_pairs reads key = value lines; # starts a comment. */
static int read_pairs(const char *root, struct pair *pairs, int max)
{
	char path[PATH_MAX], line[640];
	snprintf(path, sizeof path, "%s/simrocm.conf", root);
	FILE *f = fopen(path, "re");
	if (f == NULL) {
		problem("cannot be read (SIMROCM_ROOT is set, so it must be there)", path);
		return 0;
	}
	int n = 0;
	while (n < max && fgets(line, sizeof line, f) != NULL) {
		char *hash = strchr(line, '#');
		if (hash != NULL)
			*hash = 0;
		char *text = trim(line);
		char *equals = strchr(text, '=');
		if (text[0] == 0)
			continue;
		if (equals == NULL) {
			problem("line without =", text);
			continue;
		}
		*equals = 0;
		snprintf(pairs[n].key, sizeof pairs[n].key, "%.63s", trim(text));
		snprintf(pairs[n].value, sizeof pairs[n].value, "%.511s", trim(equals + 1));
		n++;
	}
	fclose(f);
	return n;
}

static const char *lookup(const struct pair *pairs, int n, const char *key)
{
	for (int i = 0; i < n; i++)
		if (strcmp(pairs[i].key, key) == 0)
			return pairs[i].value;
	return NULL;
}

/* mask keeps the devices that a *_VISIBLE_DEVICES variable lists, in its order. ROCR sees physical ordinals, HIP sees
 * what ROCR left; an entry that is no ordinal ends the list, as in the runtime. */
static void mask(const char *variable)
{
	const char *list = getenv(variable);
	if (list == NULL)
		return;
	int kept[SIM_MAX_GPUS], n = 0;
	while (*list != 0 && n < SIM_MAX_GPUS) {
		char *end;
		long v = strtol(list, &end, 10);
		if (end == list || v < 0 || v >= cfg.visible_count)
			break;
		kept[n++] = cfg.visible[v];
		list = *end == ',' ? end + 1 : end;
		if (*end != ',' && *end != 0)
			break;
	}
	if (n != cfg.visible_count)
		cfg.masked = true;
	memcpy(cfg.visible, kept, sizeof(int) * (size_t)n);
	cfg.visible_count = n;
}

static void load_links(int64_t link_mbps)
{
	const struct sim_model *m = cfg.model;
	int parts = cfg.partitions;
	cfg.nominal_pair_mbps = link_mbps;
	for (int a = 0; a < cfg.gpus; a++)
		for (int b = 0; b < cfg.gpus; b++) {
			bool joined = m->hive_size == 0 || a / parts / m->hive_size == b / parts / m->hive_size;
			cfg.pair_kind[a][b] = joined ? SIM_LINK_XGMI : SIM_LINK_PCIE;
			cfg.pair_mbps[a][b] = joined ? link_mbps : m->cross_mbps;
			if (a / parts == b / parts && a != b)
				cfg.pair_mbps[a][b] = 819200; /* within one GPU, as KFD reports it */
		}
}

static void load(void)
{
	const char *root = getenv("SIMROCM_ROOT");
	static struct pair pairs[512];
	int n = root != NULL && root[0] != 0 ? read_pairs(root, pairs, 512) : 0;
	int64_t number;
	const char *v;

	cfg.model = &models[0];
	if ((v = lookup(pairs, n, "model")) != NULL) {
		const struct sim_model *found = NULL;
		for (size_t i = 0; i < sizeof models / sizeof models[0]; i++)
			if (strcmp(models[i].name, v) == 0)
				found = &models[i];
		if (found != NULL)
			cfg.model = found;
		else
			problem("unknown model", v);
	}
	snprintf(cfg.node, sizeof cfg.node, "%.127s", (v = lookup(pairs, n, "node")) != NULL ? v : "sim-node");
	cfg.flavor = FLAVOR_RCCLX_DEV;
	if ((v = lookup(pairs, n, "flavor")) != NULL) {
		bool known = false;
		for (enum sim_flavor f = FLAVOR_RCCL; f <= FLAVOR_RCCLX_STABLE; f++)
			if (strcmp(simrocm_flavor_name(f), v) == 0) {
				cfg.flavor = f;
				known = true;
			}
		if (!known)
			problem("unknown flavor", v);
	}
	for (int i = 0; i < SIM_MAX_GPUS; i++) {
		char key[16];
		snprintf(key, sizeof key, "gpu.%d", i);
		if ((v = lookup(pairs, n, key)) == NULL)
			break;
		snprintf(cfg.pci[i], sizeof cfg.pci[i], "%.19s", v);
		cfg.gpus = i + 1;
	}
	if (n == 0) {
		cfg.gpus = 8;
		for (int i = 0; i < 8; i++)
			snprintf(cfg.pci[i], sizeof cfg.pci[i], "%s", mi300x_pci[i]);
	}
	for (int i = 0; i < cfg.gpus; i++)
		cfg.visible[i] = i;
	cfg.visible_count = cfg.gpus;
	mask("ROCR_VISIBLE_DEVICES");
	mask(getenv("HIP_VISIBLE_DEVICES") != NULL ? "HIP_VISIBLE_DEVICES" : "CUDA_VISIBLE_DEVICES");

	int64_t link_mbps = cfg.model->link_mbps;
	if ((v = lookup(pairs, n, "link_bandwidth_mbps")) != NULL) {
		if (parse_number(v, &number) && number > 0)
			link_mbps = number;
		else
			problem("link_bandwidth_mbps is not a positive number", v);
	}
	cfg.partitions = 1;
	if ((v = lookup(pairs, n, "devices_per_gpu")) != NULL) {
		if (parse_number(v, &number) && number > 0 && number <= SIM_MAX_GPUS)
			cfg.partitions = (int)number;
		else
			problem("devices_per_gpu is not a small number", v);
	}
	load_links(link_mbps);
	int64_t nic_mbps = 50000;
	if ((v = lookup(pairs, n, "nic_bandwidth_mbps")) != NULL && parse_number(v, &number) && number > 0)
		nic_mbps = number;
	for (int i = 0; i < SIM_MAX_GPUS; i++)
		cfg.nic_mbps[i] = nic_mbps;
	for (int i = 0; i < n; i++) {
		if (strncmp(pairs[i].key, "link.", 5) == 0)
			apply_link(pairs[i].key + 5, pairs[i].value);
		if (strncmp(pairs[i].key, "interface.", 10) == 0 && cfg.interface_count < SIM_MAX_INTERFACES) {
			struct sim_interface *f = &cfg.interfaces[cfg.interface_count++];
			snprintf(f->name, sizeof f->name, "%.15s", pairs[i].key + 10);
			snprintf(f->address, sizeof f->address, "%.*s", (int)strcspn(pairs[i].value, "/"), pairs[i].value);
		}
	}
	if ((v = lookup(pairs, n, "fault")) != NULL)
		apply_faults(v);

	cfg.hip_runtime_version = 70051831; /* HIP 7.0.51831, of ROCm 7.0 */
	if ((v = lookup(pairs, n, "hip_runtime")) != NULL && parse_number(v, &number))
		cfg.hip_runtime_version = (int)number;
	snprintf(cfg.rocm_version, sizeof cfg.rocm_version, "7.0.2");
	snprintf(cfg.boot_id, sizeof cfg.boot_id, "simrocm");
	read_line("/", "proc/sys/kernel/random/boot_id", cfg.boot_id, sizeof cfg.boot_id);
	if (n > 0) {
		read_line(root, "opt/rocm/.info/version", cfg.rocm_version, sizeof cfg.rocm_version);
		read_line(root, "proc/sys/kernel/random/boot_id", cfg.boot_id, sizeof cfg.boot_id);
	}
	if (cfg.problem[0] != 0)
		fprintf(stderr, "simrocm: %s\n", cfg.problem);
}

const struct sim_config *simrocm_config(void)
{
	pthread_once(&once, load);
	return &cfg;
}
