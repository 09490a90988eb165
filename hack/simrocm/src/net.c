/* net.c - the network that the library would choose between nodes, and what its log says of it. Choice and words are
 * those of RCCLX (torchcomms comms/rcclx/develop/projects/rccl): src/misc/socket.cc ncclFindInterfaces, src/bootstrap.cc
 * bootstrapNetInit, src/transport/net_ib.cc, src/transport/net_socket.cc, src/plugin/net.cc, src/transport/p2p.cc. Nothing
 * goes over any of it: data goes through shared memory, and model.h has the bandwidth. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dirent.h>
#include <ifaddrs.h>
#include <limits.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rccl.h"

#define MAX_INTERFACES 16
#define MAX_NICS 32
#define MAX_NAMES 32

struct interface {
	char name[IF_NAMESIZE], address[INET6_ADDRSTRLEN];
};

struct nic {
	char name[64];
	bool infiniband;
	int place; /* among all of the node's */
};

static struct network choice;
static struct interface interfaces[MAX_INTERFACES];
static int interface_count;
static struct nic nics[MAX_NICS];
static int nic_count, nic_places;
static int bootstrap_rc;
static pthread_once_t bootstrap_once = PTHREAD_ONCE_INIT, choice_once = PTHREAD_ONCE_INIT;

/* names is a list of NCCL_SOCKET_IFNAME or NCCL_IB_HCA: NAME or NAME:PORT, as prefixes, with = in front exactly, with ^
 * all but those. */
struct names {
	bool all_but, exact;
	int count;
	struct {
		char name[64];
		int port;
	} list[MAX_NAMES];
};

static struct names parse_names(const char *text)
{
	struct names n = {0};
	n.all_but = text[0] == '^';
	text += n.all_but;
	n.exact = text[0] == '=';
	text += n.exact;
	char copy[1024], *rest = copy, *one;
	snprintf(copy, sizeof copy, "%s", text);
	while ((one = strsep(&rest, ",")) != NULL && n.count < MAX_NAMES) {
		char *colon = strchr(one, ':');
		n.list[n.count].port = colon != NULL ? atoi(colon + 1) : -1;
		if (colon != NULL)
			*colon = 0;
		if (one[0] != 0)
			snprintf(n.list[n.count++].name, sizeof n.list[0].name, "%.63s", one);
	}
	return n;
}

static bool matches(const struct names *n, const char *name, int port)
{
	bool found = n->count == 0;
	for (int i = 0; i < n->count && !found; i++) {
		const char *wanted = n->list[i].name;
		bool same = n->exact ? strcmp(name, wanted) == 0 : strncmp(name, wanted, strlen(wanted)) == 0;
		found = same && (n->list[i].port < 0 || port < 0 || n->list[i].port == port);
	}
	return found != n->all_but;
}

static int family_of(const char *address) { return strchr(address, ':') != NULL ? AF_INET6 : AF_INET; }

static void add_interface(const struct names *n, int family, const char *name, const char *address)
{
	if (interface_count == MAX_INTERFACES || !matches(n, name, -1) || (family != -1 && family_of(address) != family))
		return;
	for (int i = 0; i < interface_count; i++)
		if (strcmp(interfaces[i].name, name) == 0)
			return;
	snprintf(interfaces[interface_count].name, sizeof interfaces[0].name, "%.15s", name);
	snprintf(interfaces[interface_count++].address, sizeof interfaces[0].address, "%.45s", address);
}

/* find_interfaces takes the machine's own interfaces, since a simulated pod's address is one of them, and the node's. */
static void find_interfaces(const char *list, int family)
{
	const struct sim_config *conf = simrocm_config();
	struct names n = parse_names(list);
	struct ifaddrs *all = NULL;
	if (getifaddrs(&all) != 0)
		all = NULL;
	for (const struct ifaddrs *i = all; i != NULL; i = i->ifa_next) {
		char text[INET6_ADDRSTRLEN] = "";
		if (i->ifa_addr == NULL)
			continue;
		if (i->ifa_addr->sa_family == AF_INET)
			inet_ntop(AF_INET, &((const struct sockaddr_in *)(const void *)i->ifa_addr)->sin_addr, text, sizeof text);
		if (i->ifa_addr->sa_family == AF_INET6) {
			const struct in6_addr *a = &((const struct sockaddr_in6 *)(const void *)i->ifa_addr)->sin6_addr;
			if (!IN6_IS_ADDR_LOOPBACK(a))
				inet_ntop(AF_INET6, a, text, sizeof text);
		}
		if (text[0] != 0)
			add_interface(&n, family, i->ifa_name, text);
	}
	freeifaddrs(all);
	for (int i = 0; i < conf->interface_count; i++)
		add_interface(&n, family, conf->interfaces[i].name, conf->interfaces[i].address);
}

static void bootstrap(void)
{
	static const char *const automatic[] = {"ib", "^docker,lo,virbr", "docker", "lo", "virbr"};
	const char *wanted = getenv("NCCL_SOCKET_IFNAME"), *f = getenv("NCCL_SOCKET_FAMILY");
	int family = f == NULL ? -1 : strcmp(f, "AF_INET") == 0 ? AF_INET : strcmp(f, "AF_INET6") == 0 ? AF_INET6 : -1;
	if (wanted != NULL && strlen(wanted) > 1) {
		info(LOG_ENV, "NCCL_SOCKET_IFNAME set by environment to %s", wanted);
		find_interfaces(wanted, family);
	} else {
		for (size_t i = 0; i < sizeof automatic / sizeof automatic[0] && interface_count == 0; i++)
			find_interfaces(automatic[i], family);
	}
	if (interface_count == 0)
		bootstrap_rc = fail(ncclInvalidUsage, "Bootstrap : no socket interface found");
	else
		info(LOG_BOOTSTRAP, "Bootstrap: Using %s:%s<0>", interfaces[0].name, interfaces[0].address);
}

/* bootstrap_result is what the choice of an interface for the rendezvous gave. */
int bootstrap_result(void)
{
	pthread_once(&bootstrap_once, bootstrap);
	return bootstrap_rc;
}

static bool read_text(const char *dir, const char *file, char *out, size_t size)
{
	char path[PATH_MAX];
	snprintf(path, sizeof path, "%s/%s", dir, file);
	FILE *f = fopen(path, "re");
	if (f == NULL)
		return false;
	bool ok = fgets(out, (int)size, f) != NULL;
	out[strcspn(out, "\n")] = 0;
	fclose(f);
	return ok;
}

static void add_nic(const struct names *n, const char *name, bool infiniband)
{
	int place = nic_places++;
	if (nic_count == MAX_NICS || !matches(n, name, 1))
		return;
	nics[nic_count].infiniband = infiniband;
	nics[nic_count].place = place;
	snprintf(nics[nic_count++].name, sizeof nics[0].name, "%.63s", name);
}

/* find_nics looks at port 1 of the node's RDMA devices, which are all that simulated ones have. */
static void find_nics(void)
{
	const char *root = getenv("SIMROCM_ROOT"), *wanted = getenv("NCCL_IB_HCA");
	struct names n = parse_names(wanted != NULL ? wanted : "");
	if (wanted != NULL && wanted[0] != 0)
		info(LOG_NET | LOG_ENV, "NCCL_IB_HCA set to %s", wanted);
	if (root == NULL || root[0] == 0) {
		for (int i = 0; i < simrocm_config()->gpus; i++) {
			char name[16];
			snprintf(name, sizeof name, "mlx5_%d", i);
			add_nic(&n, name, false);
		}
		return;
	}
	char dir[PATH_MAX];
	struct dirent **entries = NULL;
	snprintf(dir, sizeof dir, "%s/sys/class/infiniband", root);
	int count = scandir(dir, &entries, NULL, versionsort);
	for (int i = 0; i < count; i++) {
		char port[PATH_MAX], state[64], layer[64];
		snprintf(port, sizeof port, "%.2000s/%s/ports/1", dir, entries[i]->d_name);
		if (entries[i]->d_name[0] != '.' && read_text(port, "state", state, sizeof state) && strstr(state, "ACTIVE") != NULL &&
		    read_text(port, "link_layer", layer, sizeof layer))
			add_nic(&n, entries[i]->d_name, strcmp(layer, "InfiniBand") == 0);
		free(entries[i]);
	}
	free(entries);
}

static void list_of_nics(char *out, size_t size)
{
	size_t at = 0;
	for (int i = 0; i < nic_count && at < size; i++)
		at += (size_t)snprintf(out + at, size - at, " [%d]%s:1/%s", i, nics[i].name, nics[i].infiniband ? "IB" : "RoCE");
}

static void list_of_interfaces(char *out, size_t size)
{
	size_t at = 0;
	for (int i = 0; i < interface_count && at < size; i++)
		at += (size_t)snprintf(out + at, size - at, " [%d]%s:%s<0>", i, interfaces[i].name, interfaces[i].address);
}

static bool initialise_ib(void)
{
	char line[1600] = "";
	if (param("NCCL_IB_DISABLE", 0) != 0)
		return false;
	if (simrocm_config()->faulty[FAULT_NO_RDMA] == 0)
		find_nics();
	if (nic_count == 0) {
		info(LOG_INIT | LOG_NET, "NET/IB : No device found.");
		return false;
	}
	list_of_nics(line, sizeof line);
	info(LOG_INIT | LOG_NET, "NET/IB : Using%s [RO]; OOB %s:%s<0>", line, interfaces[0].name, interfaces[0].address);
	return true;
}

static void choose(void)
{
	char line[1600] = "";
	const char *wanted = getenv("NCCL_NET");
	bool any = wanted == NULL || wanted[0] == 0;
	choice.result = bootstrap_result();
	if (choice.result != ncclSuccess)
		return;
	if (any || strcasecmp(wanted, "IB") == 0) {
		if (initialise_ib()) {
			info(LOG_INIT | LOG_NET, "Initialized NET plugin IB");
			return;
		}
		info(LOG_INIT | LOG_NET, "Failed to initialize NET plugin IB");
	}
	if (any || strcasecmp(wanted, "Socket") == 0) {
		list_of_interfaces(line, sizeof line);
		info(LOG_INIT | LOG_NET, "NET/Socket : Using%s", line);
		info(LOG_INIT | LOG_NET, "Initialized NET plugin Socket");
		choice.sockets = true;
		return;
	}
	choice.result = fail(ncclInvalidUsage, "Failed to initialize any NET plugin");
}

/* network_choice chooses the network at the process' first communicator. */
const struct network *network_choice(void)
{
	pthread_once(&choice_once, choose);
	return &choice;
}

/* device_between is the library's number of the device that a rank uses to other nodes: the NIC beside its GPU, else the
 * nearest one that may be used. */
static int device_between(const struct comm *c)
{
	const struct sim_config *conf = simrocm_config();
	int gpus = conf->gpus / conf->partitions, best = 0;
	if (choice.sockets || gpus == 0)
		return 0;
	int beside = c->ordinal / conf->partitions * nic_places / gpus;
	for (int i = 1; i < nic_count; i++)
		if (abs(nics[i].place - beside) < abs(nics[best].place - beside))
			best = i;
	return best;
}

static void log_across(const struct comm *c, int channel, int from, int to)
{
	const struct rank_info *a = &c->infos[from], *b = &c->infos[to];
	/* Each rank tells its own network, also where the peer has another. */
	info(LOG_INIT | LOG_NET, "Channel %02d/0 : %d[%d] -> %d[%d] [%s] via NET/%s/%d%s comm %p nRanks %02d", channel, from, a->device, to,
		b->device, from == c->rank ? "send" : "receive", choice.sockets ? "Socket" : "IB", device_between(c),
		choice.sockets ? "" : "/GDRDMA", (const void *)c, c->ranks);
}

static void log_within(const struct comm *c, int channel, int from, int to)
{
	const struct rank_info *a = &c->infos[from], *b = &c->infos[to];
	unsigned long x = bus_number(a->pci), y = bus_number(b->pci);
	if (a->pair_kind[b->ordinal] == SIM_LINK_XGMI)
		info(LOG_INIT | LOG_P2P, "Channel %02d/0 : %d[%lx] -> %d[%lx] via P2P/IPC comm %p nRanks %02d", channel, from, x, to, y,
			(const void *)c, c->ranks);
	else
		info(LOG_INIT | LOG_SHM, "Channel %02d : %d[%lx] -> %d[%lx] via SHM/direct/direct comm %p nRanks %02d", channel, from, x, to, y,
			(const void *)c, c->ranks);
}

static bool together(const struct comm *c, int a, int b) { return strcmp(c->infos[a].host, c->infos[b].host) == 0; }

/* network_log tells how this rank reaches its neighbours in each channel's ring. Channel k enters a node at its k-th rank
 * and leaves it at the one before, so that the channels are spread over the NICs. Nodes come in the order of their ranks. */
void network_log(const struct comm *c)
{
	int ring[MAX_RANKS], channels = c->topology.local_ranks > 2 ? c->topology.local_ranks : 2;
	info(LOG_INIT | LOG_NET, "Assigned NET plugin %s to comm", choice.sockets ? "Socket" : "IB");
	info(LOG_INIT, "Using network %s", choice.sockets ? "Socket" : "IB");
	if (c->ranks < 2 || !logs_info())
		return;
	for (int channel = 0; channel < channels && channel < 8; channel++) {
		int count = 0, at = 0;
		for (int r = 0; r < c->ranks; r++) {
			int members[MAX_RANKS], n = 0;
			for (int q = 0; q < c->ranks; q++)
				if (together(c, q, r))
					members[n++] = q;
			if (members[0] != r) /* the node was taken with its first rank */
				continue;
			for (int k = 0; k < n; k++)
				ring[count++] = members[(channel + k) % n];
		}
		while (ring[at] != c->rank)
			at++;
		int next = ring[(at + 1) % count], before = ring[(at + count - 1) % count];
		if (!together(c, before, c->rank))
			log_across(c, channel, before, c->rank);
		if (together(c, c->rank, next))
			log_within(c, channel, c->rank, next);
		else
			log_across(c, channel, c->rank, next);
	}
}
