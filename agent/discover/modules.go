package discover

// dieLinks is how many xGMI links join the two dies of an MI250 or MI250X package (MI200 data sheet; xgmi_num_links 04,
// and KFD's max_bandwidth is four times min_bandwidth).
const dieLinks = 4

// setModules says which GPUs share a package, and what the GPUs are. It needs the mesh.
func (f *Facts) setModules() {
	f.Function = functionOf(f.GPUs)
	f.Modules = nil
	if len(f.GPUs) == 0 {
		return
	}
	count, virtual := 0, 0
	for i := range f.GPUs {
		m := &f.GPUs[i].model
		if !m.known || m.Fabric == fabricUnknown {
			return // a newer GPU may have several dies
		}
		if m.VF {
			virtual++
		}
		if !m.TwoDies {
			count++
		}
	}
	// Several virtual functions may be of one GPU; that each reaches all others by xGMI proves that they are not.
	if virtual > 0 && len(f.GPUs) > 1 && (virtual < len(f.GPUs) || f.Mesh.State != MeshFull) {
		return
	}
	packages := f.packages()
	if packages == nil {
		return
	}
	for module, dies := range packages {
		for _, i := range dies {
			number := module
			f.GPUs[i].Module = &number
		}
	}
	count += len(packages)
	f.Modules = &count
}

// packages pairs the dies of two-die packages: the two that each have dieLinks links to the other, and to nobody else.
// Nil where any die has no such partner, or several: then it is not known which share a package.
func (f *Facts) packages() [][]int {
	pairs := [][]int{}
	for i := range f.GPUs {
		if !f.GPUs[i].model.TwoDies {
			continue
		}
		partner := f.partner(i)
		if partner < 0 || f.partner(partner) != i {
			return nil
		}
		if i < partner {
			pairs = append(pairs, []int{i, partner})
		}
	}
	return pairs
}

// partner is the only die of the same model that has dieLinks links to GPU i; -1 where there is none, or several.
func (f *Facts) partner(i int) int {
	found := -1
	for j := range f.GPUs {
		if i == j || f.GPUs[j].DeviceID != f.GPUs[i].DeviceID || f.linksBetween(i, j) != dieLinks {
			continue
		}
		if found >= 0 {
			return -1
		}
		found = j
	}
	return found
}

// linksBetween is how many parallel links lead from GPU i to GPU j: as the driver lists them, else by the bandwidths
// that KFD states of one link and of all. 0 where that is not known.
func (f *Facts) linksBetween(i, j int) uint64 {
	if links := f.hiveOrder.view(&f.GPUs[i], &f.GPUs[j]).links; links != nil && *links > 0 {
		return uint64(*links)
	}
	link := f.Mesh.Pairs[i][j]
	if !isXGMI(link) || link.MinBandwidthMBps == nil || link.MaxBandwidthMBps == nil ||
		*link.MaxBandwidthMBps%*link.MinBandwidthMBps != 0 {
		return 0
	}
	return *link.MaxBandwidthMBps / *link.MinBandwidthMBps
}

// functionOf is what all GPUs are: physical or virtual functions, or both.
func functionOf(gpus []GPU) string {
	found := ""
	for i := range gpus {
		switch one := gpus[i].model.function(); {
		case one == FunctionUnknown:
			return FunctionUnknown
		case found == "":
			found = one
		case found != one:
			found = FunctionMixed
		}
	}
	if found == "" {
		return FunctionUnknown
	}
	return found
}

// nameUnknown names GPUs that the table does not know by what their boards say. GPUs of one device id get one name,
// also where not every board could be read.
func (f *Facts) nameUnknown() {
	names := map[string]string{}
	for i := range f.GPUs {
		g := &f.GPUs[i]
		if !g.model.known && g.ProductName != "" && names[g.DeviceID] == "" {
			names[g.DeviceID] = g.model.selfName(g.ProductName)
		}
	}
	for i := range f.GPUs {
		if name := names[f.GPUs[i].DeviceID]; name != "" {
			f.GPUs[i].Model = name
		}
	}
	for i := range f.PCIGPUs {
		if name := names[f.PCIGPUs[i].DeviceID]; name != "" {
			f.PCIGPUs[i].Model = name
		}
	}
}
