package worker

import (
	"errors"
	"testing"

	"rcclx.io/commgroup-operator/rcclx"
)

func TestSettingsHash(t *testing.T) {
	files := map[string]string{
		"/person/.rccl.conf": "# mine\nNCCL_ALGO=Ring\nPATH=/bin\n",
		"/etc/rccl.conf":     "NCCL_ALGO=Tree\r\nNCCL_PROTO=LL\n#NCCL_BUFFSIZE=1\n",
		"/etc/nccl.conf":     "NCCL_PROTO=LL128",
		"/conf":              "NCCL_ALGO=Tree\n",
		"/a.csv":             "allreduce,0,65536,tree,ll,4,1,8\n",
		"/copy.csv":          "allreduce,0,65536,tree,ll,4,1,8\n",
		"/b.csv":             "allreduce,0,65536,ring,ll,4,1,8\n",
	}
	read := func(path string) ([]byte, error) {
		text, ok := files[path]
		if !ok {
			return nil, errors.New("no such file")
		}
		return []byte(text), nil
	}
	hash := func(f rcclx.Flavor, home string, environment ...string) string {
		return settingsHash(f, environment, home, read)
	}
	base := hash(rcclx.FlavorRCCLXDev, "", "RCCL_DDA_NRANKS=8", "NCCL_ALGO=Tree")
	same := map[string]string{
		"order": hash(rcclx.FlavorRCCLXDev, "", "NCCL_ALGO=Tree", "RCCL_DDA_NRANKS=8"),
		"other programs": hash(rcclx.FlavorRCCLXDev, "", "RCCL_DDA_NRANKS=8", "PATH=/usr/bin", "NCCL_ALGO=Tree",
			"SIMROCM_ROOT=/x"),
		"own to a rank": hash(rcclx.FlavorRCCLXDev, "", "RCCL_DDA_NRANKS=8", "NCCL_HOSTID=a", "NCCL_DEBUG=INFO",
			"NCCL_ALGO=Tree"),
		"from the file":  hash(rcclx.FlavorRCCLXDev, "", "RCCL_DDA_NRANKS=8", "NCCL_PROTO=LL"),
		"a file named":   hash(rcclx.FlavorRCCLXDev, "", "RCCL_DDA_NRANKS=8", "NCCL_CONF_FILE=/conf"),
		"a file missing": hash(rcclx.FlavorRCCLXDev, "/nowhere", "RCCL_DDA_NRANKS=8"),
		"no such table":  hash(rcclx.FlavorRCCLXDev, "", "RCCL_DDA_NRANKS=8", "NCCL_TUNER_CONFIG_FILE=/none.csv"),
	}
	for name, got := range same {
		if got != base || len(got) != 16 {
			t.Errorf("%s: %s, want %s", name, got, base)
		}
	}
	table := func(path string) string { return hash(rcclx.FlavorRCCL, "", "NCCL_TUNER_CONFIG_FILE="+path) }
	if table("/a.csv") != table("/copy.csv") || table("/a.csv") == table("/b.csv") {
		t.Error("a tuner's table is not compared by what it says")
	}
	different := map[string]string{
		"a tuner's table": hash(rcclx.FlavorRCCLXDev, "", "RCCL_DDA_NRANKS=8", "NCCL_ALGO=Tree",
			"NCCL_TUNER_CONFIG_FILE=/a.csv"),
		"value": hash(rcclx.FlavorRCCLXDev, "", "RCCL_DDA_NRANKS=0", "NCCL_ALGO=Tree"),
		"one more": hash(rcclx.FlavorRCCLXDev, "", "RCCL_DDA_NRANKS=8", "NCCL_ALGO=Tree",
			"HSA_NO_SCRATCH_RECLAIM=1"),
		"one less":          hash(rcclx.FlavorRCCLXDev, "", "NCCL_ALGO=Tree"),
		"a user's file":     hash(rcclx.FlavorRCCLXDev, "/person", "RCCL_DDA_NRANKS=8"),
		"another flavor":    hash(rcclx.FlavorNCCL, "", "RCCL_DDA_NRANKS=8", "NCCL_ALGO=Tree"),
		"over the file's":   hash(rcclx.FlavorRCCLXDev, "", "RCCL_DDA_NRANKS=8", "NCCL_PROTO=Simple"),
		"an empty variable": hash(rcclx.FlavorRCCLXDev, "", "RCCL_DDA_NRANKS=8", "NCCL_ALGO="),
	}
	for name, got := range different {
		if got == base {
			t.Errorf("%s: the hash is that of other settings", name)
		}
	}
}
