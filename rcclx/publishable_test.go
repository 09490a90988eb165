package rcclx

import (
	"strings"
	"testing"
)

func TestWhyNotPublishable(t *testing.T) {
	for name, tc := range map[string]struct {
		variable EnvVar
		why      string
	}{
		"plain":              {EnvVar{Name: "NCCL_DEBUG", Value: "INFO"}, ""},
		"no value":           {EnvVar{Name: "NCCL_DEBUG"}, ""},
		"blanks and Unicode": {EnvVar{Name: "NCCL_TOPO_FILE", Value: "/a b/ü#=\"'"}, ""},
		"line feed": {EnvVar{Name: "NCCL_DEBUG", Value: "INFO\nNCCL_NET_PLUGIN=/x.so"},
			`has a line break or another control character in its value "INFO\nNCCL_NET_PLUGIN=/x.so"`},
		"carriage return":   {EnvVar{Name: "NCCL_DEBUG", Value: "INFO\r"}, "line break"},
		"tab":               {EnvVar{Name: "NCCL_DEBUG", Value: "a\tb"}, "control character"},
		"NUL":               {EnvVar{Name: "NCCL_DEBUG", Value: "a\x00b"}, "control character"},
		"next line":         {EnvVar{Name: "NCCL_DEBUG", Value: "a\u0085b"}, "control character"},
		"line separator":    {EnvVar{Name: "NCCL_DEBUG", Value: "a\u2028b"}, "line break"},
		"long":              {EnvVar{Name: "NCCL_DEBUG", Value: strings.Repeat("x", 1000) + "\n"}, "xxx...\""},
		"line feed in name": {EnvVar{Name: "NCCL_DEBUG\n", Value: "INFO"}, "is no NCCL_*"},
		"the file's key":    {EnvVar{Name: "rccl.conf", Value: "x"}, "is no NCCL_*"},
		"another program's": {EnvVar{Name: "LD_PRELOAD", Value: "/x.so"}, "is no NCCL_*"},
		"plugin":            {EnvVar{Name: "NCCL_NET_PLUGIN", Value: "x"}, "loads"},
		"file":              {EnvVar{Name: "NCCL_CONF_FILE", Value: "x"}, "loads"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := WhyNotPublishable(tc.variable); (got == "") != (tc.why == "") || !strings.Contains(got, tc.why) {
				t.Errorf("got %q, expected %q", got, tc.why)
			}
		})
	}
}

func TestOneLine(t *testing.T) {
	if got := OneLine("a\nb\rc\u2028d e"); got != "a b c d e" {
		t.Errorf("%q", got)
	}
}
