/* model.h - the time model. Nothing here was measured by us: no AMD GPU was at hand. It is calibrated so that a healthy
 * simulated node shows what public reports say of a healthy real one, and every fault moves it in the right direction.
 * It must not be used to predict the speed of a machine.
 *
 * Standard path, one node, GPUs in a full xGMI mesh (MI300X, MI308X, MI325X, MI350X, MI355X: 7 links a GPU):
 *   busbw = 0.964 * (n-1) * usable bandwidth of the slowest pair
 *   time  = base latency + size * factor / busbw            (factor: 2(n-1)/n for AllReduce, (n-1)/n for AllGather ...)
 *   usable bandwidth 48 GB/s of 64 on gfx942: RCCL's own constant (topo.h) and AMD's blog on MI300X xGMI.
 *   8 x MI300X: 324 GB/s in the limit; 307 at 64 MiB, 320 at 256 MiB. Reported: 315.5 at 256 MiB and 322.4 at 1 GiB
 *   (ROCm/rocm-systems#5297); AMD's acceptance threshold is 304 GB/s (system-acceptance-docs).
 *   MI350X and MI355X: 55 GB/s a pair gives 371; reported 361 to 367.5 at 8 GiB (system-acceptance-docs).
 *   MI300A: two links a pair, 4 GPUs: 233 GB/s reported (torch-mojo-backend#455); efficiency 0.81 fits that.
 *   All collectives are bound by the slowest pair, since rings and direct algorithms give every link an equal share.
 *   A pair without xGMI: 24 GB/s, as reported when RCCL took xGMI for PCIe (rocm-systems#5297).
 * MI250X: 132 GB/s for 8 GCDs (threshold 125); MI210: 34.5 in a hive of 4, 9 across (thresholds 30 and 8), MI100 alike,
 *   guessed. These scale with the slowest pair, and know no difference between rings.
 * Base latency of the standard path: 20 us for AllReduce on 8 GPUs, less for fewer (the order of magnitude of rccl-tests
 *   rows for small messages); AllGather and ReduceScatter 18, AllToAll 17, Broadcast and Reduce 16, Send/Recv 12.
 * AllToAll: 0.7 * (n-1) pairs (TransferBench a2a 32.9 GB/s a link on MI300X, of 48). Sends and receives with more than two
 *   peers at once, as AllToAllv makes them, get the same share of each pair; messages to other nodes share one NIC.
 * DDA: flat = 8 us + size at 0.9 of a pair (every rank reads all of its 7 peers' buffers at once); tree = 10.5 us + twice a
 *   1/n share at 0.97 of a pair; AllGather, ReduceScatter and AllToAll (AMD's only) = 9 us + a 1/n share. Meta's blog claims 10-50 % for decode and 10-30 % for prefill; no table was published.
 * Low precision: 40 us + half of the standard path's transfer for fp32, two thirds for bf16. Wire bytes fall to 1/4 and
 *   1/2, the rest is for the quantisation kernels. A guess: Meta's blog gives only end-to-end numbers (9-10 % latency).
 * AllGather below the low-precision threshold (ncclP2PAllGather): 30 us and 0.7 of the standard busbw.
 * Several nodes: busbw is the lower of the node's own and 0.875 * GPUs * NIC (50 GB/s each): 330-350 GB/s at 8 and 16 GiB
 *   in AMD's two-node tables; 25 us more for each doubling of nodes. AllToAll and Send/Recv: 47 GB/s a NIC.
 * Over sockets a node has 3 GB/s for all of its ranks (NVIDIA/aicr#2689: about 3 GB/s where RDMA gave 489). One rank that
 *   has no RDMA device makes all of the communicator's traffic between nodes go so; a real library may hang or fail instead.
 * Faults between nodes: a NIC's share counts in every communicator over several nodes that its GPU is in, since rings are
 *   spread evenly over the NICs and the slowest one sets the pace. A bad pair of nodes counts in every communicator that has
 *   both, whether or not its ring would join them: which nodes are neighbours depends on channels that are not modelled. For
 *   Send and Receive a slow pair counts only between the two, and a hanging one as in collectives.
 * Not modelled: NCCL_ALGO, NCCL_PROTO, channels, tuning tables, contention between communicators, jitter, host overhead.
 */
#ifndef SIMROCM_MODEL_H
#define SIMROCM_MODEL_H

#define EXCHANGE_SHARE 0.726 /* 0.7 / 0.964 */

#endif
