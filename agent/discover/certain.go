package discover

// GPUsCertain says that a GPU which is not among the facts is not in KFD. It is false where one may only be out of
// sight: hidden by the device cgroup, unreadable, or in a topology that changed during the scan.
func (f *Facts) GPUsCertain() bool {
	return len(f.HiddenNodes) == 0 && len(f.UnreadableNodes) == 0 && f.GenerationStable && f.sysClass == "" &&
		f.nodesClass == "" && (f.kfdClass == "" || f.kfdClass == ClassMissing)
}

// LinksCertain says that a link which is not among the facts, between two GPUs that are, is not in KFD.
func (f *Facts) LinksCertain() bool { return f.GPUsCertain() && len(f.linksUnread) == 0 }

// linksRead says that all links of a GPU could be read, so that one which is not among them is not there.
func (f *Facts) linksRead(gpu int) bool {
	for _, node := range f.GPUs[gpu].Nodes {
		if f.linksUnread[node] {
			return false
		}
	}
	return true
}

// Virtual says that the GPU is a virtual function, whose host may hide from it what it hides from a guest.
func (g *GPU) Virtual() bool { return g.model.VF }

// RASReadable says that the GPU has error counters and that all of them could be read.
func (g *GPU) RASReadable() bool { return len(g.RAS) > 0 && !g.rasUnread }
