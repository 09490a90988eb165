package main

// wordsSpan are of the group's stage and of a node's network in it.
var wordsSpan = map[string]more{
	"WaitingForMembers": {
		Seen: []string{"Run 4-2: the group's stage of 16 nodes starts; their pods have 600 s to be ready."},
		Means: "Each node that passed alone gets a pod that keeps its GPUs until all are there. It is a state, " +
			"not a failure: past `run.membersDeadlineSeconds` the stage goes on with those that are ready, or ends, " +
			"and names who was missing.",
		Causes: []string{"GPUs of a node were taken by a job between its own run and the stage.",
			"Kueue admits all pods together or none.", "The first pull of the image on a node.",
			"Another group's stage has claimed the nodes: it goes first."},
		Look: []string{
			"kubectl get pods -n NAMESPACE -l rcclx.io/commgroup=GROUP,rcclx.io/stage=group -o wide   # Pending, " +
				"ContainerCreating, or not there",
			podEvents,
			status + "                    # Running: how many are present, and until when"},
		Do: []string{"`members.minMembers` below the number of nodes lets the group go on without " +
			"one that is busy."},
		Escalate: "Nobody before the deadline.",
		Ends:     "At the latest at the time that the condition Running names."},
	"GroupStepFailed": {
		Seen: []string{
			"Node gpu-3 reports task 4-2/group-1, communicator group, as passed without a result of AllReduce " +
				"BFloat16 at 1073741824 B. Its agent may be of another version than the manager.",
			"Test group-2 cannot be laid over the members that are present: mesh: dp 16 x tp 8 is 128 ranks, " +
				"and the members that are present have 120; it would fit with dp: 15."},
		Means: "The stage could not be judged, and no node said anything better. It is about reports and " +
			"bookkeeping, so it is Error: no node is blamed.",
		Causes: []string{"Agent and manager of different versions, in the middle of an upgrade: " +
			"the agent's image is pinned apart from the manager's.",
			"A report that was refused or cut by the API server.", "So many tests that the status is full."},
		Look: []string{
			"kubectl get pods -A -l 'rcclx.io/role in (monitor,run)' -o " +
				"jsonpath='{.items[*].spec.containers[*].image}' | tr ' ' '\\n' | sort | uniq -c   # one agent image",
			"kubectl commgroup version                                           # of the plugin and of " +
				"the cluster's API",
			tests, runLogs},
		Do: []string{"Upgrade through the chart, which moves manager and agent together, then run again."},
		Escalate: "The operator's authors with `kubectl commgroup support-bundle GROUP -n NAMESPACE`, where versions " +
			"agree and it comes again.",
		Ends: "With a run whose reports are whole."},
	"HangAcrossNodes": {
		Seen: []string{"AllReduce BFloat16 65536 B does not end within 60 s in each communicator with gpu-3, " +
			"and those without are good (9 tests in 3 rounds of 312 s); alone the node is fine. Look at what it " +
			"shares for the way out: NICs, cables, switch port, routes, firewall."},
		Means: "A communicator over several nodes did not form, or stood still in a step. Each node passed alone, so " +
			"it is what lies between them. The search names a node or a pair; without a name, look at what all share.",
		Causes: []string{"TCP: a firewall, NetworkPolicy or route that lets the rendezvous through and not the " +
			"ranks' other ports.", "RDMA: a wrong GID index (RoCE v1, or an address of another VLAN), or packets " +
			"lost on a port without PFC: retries for ever.", "MTU: small messages pass, large ones never arrive.",
			"A NIC or switch port that drops: link up, counters rise.",
			"Members with other settings (`NCCL_*` from a mounted rccl.conf)."},
		Look: []string{
			status + "                    # culprit, then each test: which sizes and members hang",
			network + "   # interface, addresses, HCAs and GID of NODE; the same of a good one",
			"kubectl get networkpolicies -n NAMESPACE                            # run pods to each other, " +
				"all TCP ports or network.portRange",
			"kubectl logs -n NAMESPACE -l rcclx.io/commgroup=GROUP,rcclx.io/stage=group --prefix --tail=100 | grep " +
				"-E 'NET/|WARN'"},
		OnNode: []string{"ping -M do -s 8972 PEER -c 3                             " +
			"# 'message too long' or silence: MTU 9000 does not go through",
			"ethtool -S IFACE | grep -iE 'err|drop|discard|pause|timeout'   # twice, a run in between: what rises",
			"rdma link; ibv_devinfo -v -d DEV | grep GID              # the GID index in use: RoCE v2 with the " +
				"fabric's address", "ss -tan state syn-sent                                   # while it hangs: " +
				"the port and peer that do not answer"},
		Do: []string{"To tell TCP from RDMA: run once with `NCCL_IB_DISABLE=1` in `runtime.env` (and " +
			"`network.requireTransport: Any`). Slow but good: RDMA. Hangs, too: ports, routes, MTU."},
		Escalate: "The network team with node, switch port, peer and time; one NIC that hangs on any port: " +
			"RMA of the NIC.",
		Ends: "When a run over all members passes."},
	"SlowGroup": {
		Seen: []string{
			"The communicator over 16 nodes is too slow: AllReduce BFloat16 at 8 GiB, median: measured 241.0 GB/s, " +
				"expected at least 330.0 GB/s (spec.benchmark.thresholds): 73 %.",
			"No pair stands out: the slowest of 30 pairs reaches 188.0 GB/s, 96 % of the best (195.1 GB/s). " +
				"The slowest is not clearly faster than the group at AllReduce BFloat16 1073741824 B (181.2 GB/s): " +
				"it is slow as a whole. Look at what all share: the switch, the transport (RDMA), the settings of " +
				"the library, the mark itself."},
		Means: "The whole stays below its mark, and neither a node nor a pair explains it. Drain nobody.",
		Causes: []string{"The transport: TCP, or RDMA through host memory (no GPUDirect) on all nodes.",
			"Only some of the NICs are used: `network.hcas`, `NCCL_IB_HCA` or rdmaResources names too few.",
			"The fabric: oversubscribed spine, one hash for all flows (ECMP, " +
				"no adaptive routing), PFC or ECN missing on all ports.",
			"The mark: made for another number of nodes, size or statistic.", "Other jobs on the fabric at that time."},
		Look: []string{
			"kubectl get cgr -n NAMESPACE RUN -o jsonpath='{.status.span.transport} {.status.span.network}'",
			"kubectl get cgr -n NAMESPACE RUN -o jsonpath='{.status.span.results}'   # falls with the number of " +
				"nodes, or flat at one NIC's rate",
			network + "   # how many HCAs; 'of N channels with GPUDirect'",
			history + "   # was the group ever faster, and what was another then: kubectl commgroup compare"},
		OnNode: []string{"ls /sys/kernel/mm/memory_peers/amdkfd; uname -r   # GPUDirect: " +
			"not there, then it takes a kernel with DMA-BUF for RDMA",
			"ethtool -S IFACE | grep -iE 'pause|ecn|cnp|discard'      # congestion during a run"},
		Do: []string{"A rough check: bus bandwidth over nodes cannot exceed the sum of the NICs of one node (8 x 400 " +
			"Gbit/s are 400 GB/s)."},
		Escalate: "The network team, once the transport is RDMA with GPUDirect on all NICs and it still stays low: " +
			"ask for uplink use and drops during a run.",
		Ends: "When a run over all members meets the mark, or the mark is changed (which starts a run)."},
	"SlowPair": {
		Seen: []string{
			"AllReduce BFloat16 1073741824 B is far slower over gpu-3 and gpu-7 together, while each is good " +
				"with others (14 tests in 4 rounds of 120 s). Measured 61.0 GB/s, expected at least 156.1 GB/s, " +
				"which is 80 % of the 195.1 GB/s that good ones reach: 31 %. Look at the path between the two: " +
				"cable, switch port, route."},
		Means: "Two nodes are slow or hang with each other, and each is fine with a third one. Neither is to blame, " +
			"and gating marks neither: it is the path that only these two share.",
		Causes: []string{"One uplink or spine link that their flows hash to: errors, or half the rate.",
			"Two ports of one leaf with a bad lane in the switch.",
			"A route or VLAN that leads the two the long way (another address family or subnet).",
			"A rail cabled crosswise: NIC 3 of one node is in the plane of NIC 4."},
		Look: []string{localized + "   # how sure: rounds, tests, what was not told apart", tests, "kubectl get ct " +
			"-n NAMESPACE -l rcclx.io/commgroup=GROUP -o custom-columns=INDEX:.spec.session.index,NODE:.spec.nodeName"},
		OnNode: []string{"traceroute -n PEER; ip route get PEER                    # against the path to a good node",
			"ib_write_bw -d DEV --report_gbits PEER                   # one NIC at a time, the same command without " +
				"PEER on the other side", "lldpctl 2>/dev/null | grep -E 'SysName|PortID'           # leaf and port " +
				"of each NIC: cabling against the plan"},
		Do: []string{"Swap the two nodes' cables at the leaf, run again: the fault stays with ports, moves with " +
			"cables, or goes."},
		Escalate: "The network team: both nodes, their leaf ports, and the spine links between those leaves.",
		Ends:     "When a run over all members passes."},
	"SlowRail": {
		Seen: []string{"AllReduce BFloat16 1073741824 B is far slower on rail 3 alone of gpu-3 with gpu-1, which is " +
			"good elsewhere (GPU 3, 0000:65:00.0, next to NIC mlx5_3; 9 tests in 3 rounds of 71 s). Measured 11.9 " +
			"GB/s, expected at least 38.1 GB/s, which is 80 % of the 47.6 GB/s that good rails of the two reach: " +
			"25 %. Look at that NIC's link speed and errors, its cable and its PCIe width."},
		Means: "One GPU's way to other nodes is slow, and its siblings' are not. All collectives over nodes " +
			"wait for this rail.",
		Causes: []string{"The NIC came up at half its rate or PCIe width after a reboot (the most common case).",
			"A dirty or bent cable: symbol errors, FEC at work.",
			"The switch port has errors, or another MTU or PFC setting than its neighbours.",
			"The NIC is on the wrong socket: traffic crosses the CPUs (`NICFar`).",
			"ACS on the PCIe switch above it, so that GPUDirect goes over the root."},
		Look: []string{topology + "                                # which NIC is next to that GPU, its state and rate",
			problems + "   # NICDown, NICFar, PCIeDegraded"},
		OnNode: []string{"ibstat NIC; ethtool IFACE | grep -E 'Speed|Link detected'   # half of the neighbours' rate",
			"lspci -vv -s NICADDRESS | grep -E 'LnkCap|LnkSta'        # Width x8 where the card can x16",
			"ethtool -S IFACE | grep -iE 'symbol|fec|crc|err|discard'",
			"ethtool -m IFACE | grep -iE 'power|temperature'          # light of the transceiver",
			"lspci -vv | grep -i ACSCtl                               # + signs: ACS is on"},
		Do: []string{"In this order, one run after each: cable reseated, cable swapped with the next rail's, " +
			"switch port swapped, NIC reseated."},
		Escalate: "Moves with the cable: new cable or transceiver. Stays at the port: the network team. " +
			"Stays with the NIC: RMA of the NIC; still there with a new NIC: riser or baseboard.",
		Ends: "When a run over all members passes."},
	"SlowCommunicator": {
		Seen: []string{"dp/3 reaches 22.1 GB/s, 47 % of what the others of dimension dp usually reach (47.0 GB/s); " +
			"at least 80 % is expected"},
		Means: "Of the communicators that your mesh would create, one is far slower than its like, and the search " +
			"could not trace it to a node. No node is to blame by this alone: drain nobody.",
		Causes: []string{"One rail: the communicators of a dimension across nodes take one " +
			"GPU of each node, so number 3 is GPU 3 everywhere: a switch plane or its uplink.",
			"A dimension within a node: that node's own links (it would have failed alone as well).",
			"All bad ones share two nodes: a pair."},
		Look: []string{status + "                    # the members of the bad communicators, and 'They take GPUs' of " +
			"the culprit", tests, culprits},
		OnNode: []string{"ibstat NIC; ethtool -S IFACE | grep -iE 'err|discard'    # of that rail's NIC, " +
			"on several members"},
		Do: []string{"The message names one node that is in every bad communicator and no good one: " +
			"look there first, it is a suspect and no culprit."},
		Escalate: "The network team for a plane: switches of that rail, uplinks, and what else runs over them.",
		Ends:     "When a run over all members passes."},
	"TransportFallback": {
		Seen: []string{"network.requireTransport is RDMA, but data of 2 of 16 nodes went over TCP: gpu-3, gpu-7. " +
			"Look at the RDMA resources and the memlock limit of their pods, and at `ibv_devinfo` on those nodes."},
		Means: "The library found no RDMA device it could use there, and went over TCP without an error, at a tenth " +
			"of the speed. In a job nobody would have noticed.",
		Causes: []string{"No `/dev/infiniband` in the pod: `network.rdmaResources` is missing, or the RDMA device " +
			"plugin gave another resource.", "Memory cannot be locked (memlock): mostly where the image does not " +
			"run as root, whom IPC_LOCK does not help.", "No libibverbs or no provider of the NIC in the image.",
			"The NIC's port is down, or its driver (RDMA part) is not loaded.",
			"`NCCL_IB_DISABLE=1` or a wrong `NCCL_IB_HCA` in `runtime.env`."},
		Look: []string{
			"kubectl get commtask -n NAMESPACE GROUP.NODE -o jsonpath='{.status.session.task.communicators}'   # " +
				"while the stage runs: the library's own reason",
			"kubectl logs -n NAMESPACE -l rcclx.io/commgroup=GROUP,rcclx.io/stage=group --prefix --tail=-1 | grep -E " +
				"'NET/IB|ibv_|NET/Socket'",
			"kubectl exec -n NAMESPACE POD -- sh -c 'ls /dev/infiniband; ulimit -l'   # while a group pod runs",
			describe + " | grep -i rdma"},
		OnNode: []string{"ibv_devinfo | grep -E 'hca_id|state'                     # PORT_ACTIVE",
			"lsmod | grep -E 'mlx5_ib|bnxt_re|ionic_rdma'             # the RDMA half of the NIC's driver",
			"systemctl show containerd -p LimitMEMLOCK                # infinity"},
		Do: []string{"Jobs need the same: resources, capability or LimitMEMLOCK, and rdma-core in the image. " +
			"Set `NCCL_NET=IB` in jobs, so that they fail instead of crawling."},
		Escalate: "The cluster's administrator for device plugin and memlock; the image's owner for libibverbs; " +
			"the network team only for a port that is down.",
		Ends: "When a run over all members uses RDMA, or `network.requireTransport` is Any."},
	"MixedSettings": {
		Seen: []string{"The members' ranks take their settings from different variables or files (rccl.conf), by " +
			"their hash: \"a41c\" on 14 nodes (gpu-1, gpu-2, gpu-4, gpu-5 and 10 more), \"77d0\" on 2 nodes (gpu-3, " +
			"gpu-9). A communicator of both may hang. Use one runtime image, and look for files that the nodes " +
			"mount into it."},
		Means: "Ranks that read other settings take other ways for one call, and wait for each other for ever. " +
			"So nothing over several nodes was tried.",
		Causes: []string{"`/etc/rccl.conf` or `~/.rccl.conf` is in the image of one tag and not of the other.",
			"A node-level hook (CDI, OCI hook, NRI) mounts a file or sets `NCCL_*` on some nodes.",
			"`NCCL_CONF_FILE` in `runtime.env` leads to a path that differs by node."},
		Look: []string{
			"kubectl get ct -n NAMESPACE -l rcclx.io/commgroup=GROUP -o " +
				"custom-columns=NODE:.spec.nodeName,SETTINGS:.status.session.settingsHash   # while the stage runs",
			"kubectl exec -n NAMESPACE POD -- sh -c 'env | grep -E \"^(NCCL|RCCL|HSA)_\" | sort; cat /etc/rccl.conf " +
				"~/.rccl.conf'   # of an odd and of a good node, side by side"},
		OnNode: []string{"ls /etc/cdi /etc/containers/oci/hooks.d /etc/nri 2>/dev/null",
			"crictl images --digests | grep IMAGE"},
		Do:       []string{"Jobs on these nodes have the same mixture: hold them until it is one."},
		Escalate: "The platform team, where a hook of the node adds the file.",
		Ends:     "With a run in which all hashes agree."},
	"MixedAddressFamilies": {
		Seen: []string{"No address family that every member has: 3 of 16 have no IPv4 address (gpu-3, gpu-7, " +
			"gpu-9), 13 no IPv6 address (gpu-1, gpu-2, gpu-4 and 10 more). Ranks of different families cannot meet: " +
			"choose the interface with network.interface, or leave those nodes out with members.exclude."},
		Means: "The ranks of all nodes need one family on the interface of the group. No communicator was formed.",
		Causes: []string{"The interface that carries the pod's address differs in family from node to node (a " +
			"dual-stack cluster, half migrated).", "DHCP gave no IPv4 address on the fabric's NIC of some nodes.",
			"`network.addressFamily` asks for one that some do not have."},
		Look: []string{
			"kubectl get ct -n NAMESPACE -l rcclx.io/commgroup=GROUP -o custom-columns=NODE:.spec.nodeName," +
				"IF:.status.session.network.interface,ADDRESSES:.status.session.network.addresses",
			"kubectl get nodes -o custom-columns=NAME:.metadata.name,ADDRESSES:.status.addresses[*].address"},
		OnNode: []string{"ip -br address                                           # the fabric's NIC: which families",
			"networkctl status IFACE 2>/dev/null | grep -i dhcp"},
		Do: []string{"`network.interface: {cidr: 10.4.0.0/16}` means its own family and takes the right NIC " +
			"whatever its name."},
		Escalate: "The network team for nodes that lack an address on the fabric.",
		Ends:     "With a run in which all have one family."},
	"DuplicateAddress": {
		Seen: []string{"2 members say that they have the address 10.4.0.5: gpu-3, gpu-7. Peers would reach one of " +
			"them for all. Look at how the network gives out addresses (with Multus: an IPAM that knows all nodes, " +
			"for example whereabouts, not host-local with one range), or choose another interface with " +
			"network.interface."},
		Means: "Whoever calls that address reaches one of the two, by chance of the switch's tables. " +
			"It would look like a hang of a node that is fine, so the stage did not start.",
		Causes: []string{"Multus with `host-local` IPAM: each node counts from the start of the same range.",
			"Static addresses copied with a node image.", "All nodes have the same address on a bridge of their own " +
				"(docker0, a VM network) that the selector takes."},
		Look: []string{
			"kubectl get network-attachment-definitions -A -o yaml | grep -A8 ipam",
			"kubectl get ct -n NAMESPACE -l rcclx.io/commgroup=GROUP -o custom-columns=NODE:.spec.nodeName," +
				"IF:.status.session.network.interface,ADDRESSES:.status.session.network.addresses"},
		OnNode: []string{"ip -br address | grep ADDRESS                            # which interface has it",
			"arping -D -I IFACE -c 3 ADDRESS                          # an answer: the other one is in " +
				"the same segment"},
		Do:       []string{"A local bridge: choose the fabric by `network.interface.cidr`."},
		Escalate: "The network team, or the owner of the NetworkAttachmentDefinition.",
		Ends:     "With a run in which all addresses differ."},
	"MeshMismatch": {
		Seen: []string{
			"mesh: dp 16 x tp 8 is 128 ranks, and the members that are present have 120; it would fit with dp: 15",
			"A member fell out while the mesh was measured, and the others do not fit it: what is missing of the " +
				"mesh was not measured."},
		Means: "The product of the mesh's sizes must be nodes times `ranksPerNode`. The group over all was measured; " +
			"of the mesh only what stands in `status.span.results` of the CommRun. Inconclusive: " +
			"no node did anything wrong.",
		Causes: []string{"A member did not pass alone, or was lost: with it the mesh would fit.",
			"`ranksPerNode` or the number of members changed, and `mesh` did not.",
			"Nodes were added to a mesh that is counted for fewer (`members.maxMembers` bounds them)."},
		Look: []string{"kubectl get cg -n NAMESPACE GROUP -o jsonpath='{.spec.mesh} {.spec.ranksPerNode}'",
			"kubectl get cgr -n NAMESPACE RUN -o jsonpath='{.status.span.present} {.status.span.left}'   # present " +
				"nodes, and who was left out", status},
		Do: []string{"A node short: mend it first, its own reason stands in `status`. Fewer for good: " +
			"the size that the message proposes."},
		Escalate: "The owner of the job whose mesh it is, before you change it.",
		Ends:     "With a run whose members fit the mesh."},
	"CulpritFound": {
		Seen: []string{"Run 4-2: The culprit of AllReduce BFloat16 1073741824 B is gpu-3 (9 tests in 3 " +
			"rounds of 71 s)."},
		Means: "The search came to a name, by tests with good partners, not by a guess. The group was then formed " +
			"again without it; `Confirmed` or a second search says whether that was all.",
		Causes: []string{"A node: its way out, or its GPUs ([SlowNode](SlowNode.md), " +
			"[HangAcrossNodes](HangAcrossNodes.md)).", "A NIC or GPU: one rail ([SlowRail](SlowRail.md)).",
			"A pair: the path between two good nodes ([SlowPair](SlowPair.md)).",
			"By what a node saw itself: a rank that died or gave wrong data there."},
		Look: []string{culprits + "   # kind, name, reason, and the message with figures and next step",
			localized, status},
		Do: []string{"Open the page of the culprit's own reason: that is the one to act by.",
			"The node that fails is under gating where that is on; else `kubectl cordon NODE`."},
		Escalate: "As the page of the culprit's reason says.",
		Ends:     "It is an event; the culprit stays in status until a run that does not find it."},

	"InterfaceNotFound": {
		Seen: []string{"Node gpu-3: network.interface.cidr 10.4.0.0/16 matches no interface; there are eth0 " +
			"(10.244.3.7/24), lo (127.0.0.1/8). With network.mode Pod the pod sees its own interfaces only, " +
			"not the node's NICs: use mode Multus or Host for those, or correct the selector."},
		Means: "What you asked for is not among the interfaces that the pod sees, which the message lists. " +
			"The node did not say Ready, so the group does without it or ends.",
		Causes: []string{"Mode Pod: only the pod network is there.",
			"Mode Multus: the attachment was not made (NetworkAttachmentDefinition of another namespace, no free VF).",
			"The name differs by node (ens3f0np0 here, eth1 there): select by CIDR.",
			"The NIC has no address on this node."},
		Look: []string{
			network,
			"kubectl get pods -n NAMESPACE -l rcclx.io/commgroup=GROUP,rcclx.io/stage=group -o " +
				"jsonpath='{.items[*].metadata.annotations}' | grep -o 'network-status[^]]*'   # what Multus " +
				"really attached",
			"kubectl get network-attachment-definitions -A"},
		OnNode: []string{"ip -br address; ls -l /sys/class/net                     # names, addresses and PCI paths"},
		Do:     []string{"`network.interface.pciAddress` finds a NIC by its slot where names and subnets differ."},
		Escalate: "The network team for a missing address; the owner of the NetworkAttachmentDefinition for a " +
			"missing attachment.",
		Ends: "With the next run in which it is found."},
	"InterfaceNotUsable": {
		Seen: []string{
			"Node gpu-3: network.interface.name eth1 is eth1, which is down or has no link; the library passes over " +
				"it. Look at its cable and at `ip link show eth1`.",
			"Node gpu-3: the pod's address 127.0.0.1 is the loopback interface lo, which other nodes do not reach. " +
				"Set network.interface to one of: eth0 (10.0.0.4/24), eth1 (10.4.0.4/24)."},
		Means: "The interface is there, and the library would not take it, or peers could not reach it. " +
			"Older libraries go on without an address and hang; here the node says so first.",
		Causes: []string{"No link: cable, transceiver, or the switch port is shut.",
			"It is a port of a bond and has no address of its own: name the bond.",
			"The CIDR matches its second address, and the library listens on the first.",
			"Loopback, or a name with `,` `:` `^` `=`."},
		Look: []string{network + "   # the message has the next step for each case"},
		OnNode: []string{"ip -br link show IFACE                                   # NO-CARRIER: " +
			"cable. DOWN: ip link set up", "ethtool IFACE | grep -E 'Speed|Link detected'",
			"cat /proc/net/bonding/* 2>/dev/null | grep -E 'Slave Interface|MII Status'",
			"ip -4 address show IFACE                                 # the order of its addresses"},
		Do:       []string{"NO-CARRIER on one node of many: swap its cable with a good one before anything else."},
		Escalate: "The network team for a port without link after the cable was swapped.",
		Ends:     "With the next run in which it has link and address."},
	"InterfaceAmbiguous": {
		Seen: []string{"Node gpu-3: network.interface.cidr 10.0.0.0/8 matches 2 interfaces: eth0 (10.0.0.4/24), " +
			"eth1 (10.4.0.4/24); expected one. Narrow the CIDR, or name one with network.interface.name."},
		Means: "Two interfaces fit, and which one the library would take depends on their order. Nothing is guessed: " +
			"on another node the order may be another.",
		Causes: []string{"The CIDR is wider than the fabric's subnet.",
			"A VLAN and its parent both have addresses in it.",
			"Several rails are in one subnet: RDMA takes all by `network.hcas`, the rendezvous needs one of them."},
		Look: []string{"kubectl get ct -n NAMESPACE -l rcclx.io/commgroup=GROUP -o " +
			"custom-columns=NODE:.spec.nodeName,IF:.status.session.network.interface,WHY:.status.session.message"},
		OnNode: []string{"ip -br address                                           # which of them is meant"},
		Do: []string{"Rails in one subnet: `network.interface.name` of the first rail, " +
			"`network.hcas` for the data."},
		Escalate: "Nobody: it is the spec's.",
		Ends:     "With the next run in which one matches."},
	"NoAddressOfFamily": {
		Seen: []string{"Node gpu-3: network.interface.name eth1 is eth1, whose first IPv6 address, the one that the " +
			"library takes, is link-local (fe80::1): it holds on one link and with an interface's name beside it, " +
			"which the peers do not get. Give the interface a global or unique local address, and that first."},
		Means: "The right interface is there without an address that peers can use.",
		Causes: []string{"DHCP or the IPAM gave none: the lease ran out, the pool is empty.",
			"IPv6: only link-local, since no router advertises a prefix on the fabric.",
			"`network.addressFamily` asks for the family that the fabric does not have."},
		Look: []string{network,
			"kubectl get cg -n NAMESPACE GROUP -o jsonpath='{.spec.network.addressFamily} {.spec.network.interface}'"},
		OnNode: []string{"ip address show dev IFACE                                # scope link alone, or " +
			"tentative/dadfailed", "journalctl -u NetworkManager -u systemd-networkd --since '-1 hour' | grep -i dhcp"},
		Do:       []string{"A fabric without IPv6: `addressFamily: IPv4`, or leave it at Auto."},
		Escalate: "The network team for leases and prefixes.",
		Ends:     "With the next run in which it has an address."},
	"HCANotFound": {
		Seen: []string{"Node gpu-3: network.hcas names mlx5_8:1, which is not there; there are mlx5_0:1 Active RoCE, " +
			"mlx5_1:1 Active RoCE. Ask for the devices with network.rdmaResources, and check the NICs' " +
			"driver on the node."},
		Means: "No RDMA device or port of that name on this node. Device numbers follow the probe order: " +
			"one NIC less shifts all names behind it.",
		Causes: []string{"A NIC is missing or failed on this node, so that the last name is gone: " +
			"compare with a good node.", "Names differ by server type (`bnxt_re0`, `ionic_0`, `rdma0`).",
			"The RDMA part of the driver is not loaded.", "SR-IOV: the VF in the pod has another name."},
		Look: []string{topology + "                                # RDMA devices of the node", network,
			"kubectl get cg -n NAMESPACE GROUP -o jsonpath='{.spec.network.hcas} {.spec.network.rdmaResources}'"},
		OnNode: []string{"rdma link; ls /sys/class/infiniband                      # names that are there",
			"lspci | grep -iE 'ethernet|infiniband' | wc -l           # against a good node: one card less",
			"dmesg -T | grep -iE 'mlx5|bnxt|ionic' | tail -20"},
		Do: []string{"Leave `network.hcas` out: the library then takes all that are active, " +
			"and status lists them."},
		Escalate: "RMA of the NIC that the PCI bus no longer shows after a cold start.",
		Ends:     "With the next run in which all named ones are there."},
	"HCANotUsable": {
		Seen: []string{
			"Node gpu-3: port 1 of mlx5_3 is Down; expected Active. Check its cable and switch port (rdma link show " +
				"mlx5_3), or leave it out of network.hcas.",
			"Node gpu-3: mlx5_3 is known to the kernel, but its file /dev/infiniband/uverbs3 is not in the pod, " +
				"so that the library cannot open it and goes over TCP. Ask for it with network.rdmaResources (the " +
				"RDMA device plugin's resource)."},
		Means: "The device exists and cannot carry data: its port has no link, or the pod has no right to it. " +
			"Sysfs shows devices that a pod may not open, so seeing it proves nothing.",
		Causes: []string{"Port Down: cable, transceiver, switch port.",
			"Port Init or Armed (InfiniBand): no subnet manager on this fabric.",
			"No uverbs file in the pod: `network.rdmaResources` is missing or too small a count.",
			"`NCCL_IB_DISABLE` in `runtime.env`."},
		Look: []string{network, topology,
			"kubectl exec -n NAMESPACE POD -- ls -l /dev/infiniband              # while a group pod runs",
			describe + " | grep -iE 'rdma|hca'"},
		OnNode: []string{"ibstat                                                   # State and Physical state; " +
			"Polling: no partner at the other end", "rdma link show DEV/1",
			"sminfo                                                   # InfiniBand: is there a subnet manager",
			"ethtool -m IFACE | grep -iE 'power|vendor'               # light, or the wrong transceiver"},
		Do: []string{"One dead rail of eight: leave it out of `network.hcas` for the night; GPUs share the others."},
		Escalate: "The network team for ports and subnet manager. RMA of cable or transceiver when the port comes up " +
			"with another one; of the NIC when it does not.",
		Ends: "With the next run in which its port is Active and the pod has its file."},
	"GIDNotUsable": {
		Seen: []string{"Node gpu-3: network.gidIndex 3 is past the table's 2 entries on port 1 of mlx5_0; " +
			"filled are 0 (fe80::1 RoCE v2), 1 (::ffff:10.4.0.4 RoCE v2). Take one of these (RoCE v2 with the " +
			"address that the peers reach), or leave gidIndex out."},
		Means: "RoCE addresses its packets by an entry of the port's GID table. An empty one makes the library fail " +
			"or hang; the table's order differs by node and address.",
		Causes: []string{"The index was copied from another kind of server (3 is usual for mlx5 " +
			"with one IPv4 address).", "The interface lost its IPv4 address, and with it two entries.",
			"A VLAN or a second address moved the entries."},
		Look: []string{network + "   # the filled entries are in the message",
			"kubectl get ct -n NAMESPACE -l rcclx.io/commgroup=GROUP -o " +
				"custom-columns=NODE:.spec.nodeName,WHY:.status.session.message   # one node, or all"},
		OnNode: []string{"ibv_devinfo -v -d DEV | grep GID                         # type and address of each",
			"cat /sys/class/infiniband/DEV/ports/1/gid_attrs/types/INDEX", "ip -br address show IFACE"},
		Do: []string{"Leave `network.gidIndex` out: newer libraries choose an entry of RoCE v2 by the address " +
			"family themselves."},
		Escalate: "The network team where one node's table differs from its like: its address is missing.",
		Ends:     "With the next run in which the entry is filled."},
	"PortRangeNotUsable": {
		Seen: []string{
			"Node gpu-3: network.portRange is 30000-30999, but the kernel takes ports from 32768-60999 here: " +
				"the pod's net.ipv4.ip_local_port_range is not in force. Look at the pod's securityContext.sysctls, " +
				"or leave portRange out.",
			"Node gpu-3: none of the 128 ports 30000-30127 is free on 10.4.0.4: 128 are in use (120 TIME_WAIT, " +
				"8 LISTEN). Make network.portRange larger, move it, or end what holds them (ss -tlnp)."},
		Means: "The firewall's agreement about ports cannot be kept on this node. Nothing was started that " +
			"would use others.",
		Causes: []string{"Too small: 16 ports a rank at least; over TCP each channel takes more.",
			"Full: sockets of earlier runs in TIME_WAIT, or NodePorts (30000-32767) that lie in the range.",
			"The sysctl is not in force: a sandboxed runtime, or an admission policy that took it out.",
			"Mode Host: only the rendezvous can be pinned, and the node's own range is another."},
		Look: []string{network + "   # who holds the ports, by state",
			"kubectl get services -A -o jsonpath='{.items[*].spec.ports[*].nodePort}' | tr ' ' '\\n' | sort -n | head",
			"kubectl get cg -n NAMESPACE GROUP -o jsonpath='{.spec.network.portRange} {.spec.ranksPerNode}'"},
		OnNode: []string{"sysctl net.ipv4.ip_local_port_range",
			"ss -tan | awk '{print $1}' | sort | uniq -c               # TIME-WAIT by the thousand",
			"ss -tlnp | grep -E ':30[0-9]{3}'                         # a listener within the range"},
		Do:       []string{"1,000 ports for 8 ranks outside of 30000-32767 are comfortable, for example 40000-40999."},
		Escalate: "The firewall's owner, to agree on another range.",
		Ends:     "With the next run in which the range is free and in force."},
}
