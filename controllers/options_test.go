package controllers

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestParseResources(t *testing.T) {
	for _, c := range []struct{ text, memory, wrong string }{
		{"", "", ""},
		{`{"limits":{"memory":"256Mi"},"requests":{"cpu":"10m"}}`, "256Mi", ""},
		{`{"limits":{"memory":"1Gi"},"requests":{"memory":"2Gi"}}`, "", "the request of memory, 2Gi, is above its limit, 1Gi"},
		{`{"limit":{}}`, "", "unknown field"},
		{`{"limits":{"memory":"much"}}`, "", "no resources of a container"},
		{`[]`, "", "no resources of a container"},
	} {
		got, err := ParseResources(c.text)
		switch {
		case c.wrong != "":
			if err == nil || !strings.Contains(err.Error(), c.wrong) {
				t.Errorf("%s: %v, expected it to say %q", c.text, err, c.wrong)
			}
		case err != nil:
			t.Errorf("%s: %v", c.text, err)
		case c.memory == "" && got != nil:
			t.Errorf("no text gave %v", got)
		case c.memory != "" && got.Limits.Memory().String() != c.memory:
			t.Errorf("%s: memory %s, expected %s", c.text, got.Limits.Memory(), c.memory)
		}
	}
}

func TestParseTolerations(t *testing.T) {
	for _, c := range []struct {
		text  string
		count int
		wrong string
	}{
		{"", 0, ""},
		{`[{"operator":"Exists"},{"key":"amd.com/gpu","value":"true","effect":"NoSchedule"}]`, 2, ""},
		{`[{"operator":"Exists","value":"x"}]`, 0, "takes no value"},
		{`[{"value":"x"}]`, 0, "names no key"},
		{`[{"keys":"x"}]`, 0, "unknown field"},
		{`{}`, 0, "no list of tolerations"},
	} {
		got, err := ParseTolerations(c.text)
		if c.wrong == "" {
			if err != nil || len(got) != c.count {
				t.Errorf("%s: %v, %v, expected %d", c.text, got, err, c.count)
			}
		} else if err == nil || !strings.Contains(err.Error(), c.wrong) {
			t.Errorf("%s: %v, expected it to say %q", c.text, err, c.wrong)
		}
	}
}

func FuzzParseOptions(f *testing.F) {
	for _, s := range []string{"", "[]", "{}", `[{"operator":"Exists"}]`, `{"limits":{"memory":"1Mi"}}`, "\x00", "a: *b"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		r, err := ParseResources(text)
		if err != nil && r != nil {
			t.Errorf("%q: resources %v along with %v", text, r, err)
		}
		tolerations, err := ParseTolerations(text)
		if err != nil && tolerations != nil {
			t.Errorf("%q: tolerations %v along with %v", text, tolerations, err)
		}
	})
}

func TestCheckNamespaces(t *testing.T) {
	for _, c := range []struct {
		served, privileged []string
		wrong              string
	}{
		{nil, nil, ""},
		{nil, []string{"ml"}, ""},
		{[]string{"ml", "research"}, []string{"ml"}, ""},
		{[]string{"operator"}, nil, "operator is the operator's own"},
		{[]string{"ml"}, []string{"other"}, "other is privileged and not served"},
		{[]string{"ML"}, nil, `"ML" is no name of a namespace`},
		{nil, []string{""}, `"" is no name of a namespace`},
	} {
		err := CheckNamespaces("operator", c.served, c.privileged)
		if (err == nil) != (c.wrong == "") || err != nil && !strings.Contains(err.Error(), c.wrong) {
			t.Errorf("served %v, privileged %v: %v, expected %q", c.served, c.privileged, err, c.wrong)
		}
	}
}

// TestMonitorOptions: what the flags say is in the monitor's pod, and what they leave open keeps its default.
func TestMonitorOptions(t *testing.T) {
	everything := corev1.PodSpec{
		Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
		Containers:  []corev1.Container{{Name: "monitor", Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{}}}},
	}
	pod := *everything.DeepCopy()
	(&MonitorOptions{}).set(&pod, "")
	if len(pod.Tolerations) != 1 || pod.Containers[0].Resources.Limits == nil || pod.PriorityClassName != "" || pod.ImagePullSecrets != nil {
		t.Errorf("no options changed the pod: %+v", pod)
	}
	resources, err := ParseResources(`{"limits":{"memory":"256Mi"}}`)
	if err != nil {
		t.Fatal(err)
	}
	pod = *everything.DeepCopy()
	(&MonitorOptions{
		Resources: resources, PriorityClass: "high", PullSecrets: []string{"a", "b"},
		Tolerations: []corev1.Toleration{{Key: "amd.com/gpu", Operator: corev1.TolerationOpExists}},
	}).set(&pod, corev1.PullAlways)
	c := pod.Containers[0]
	if pod.PriorityClassName != "high" || pod.Tolerations[0].Key != "amd.com/gpu" || c.ImagePullPolicy != corev1.PullAlways ||
		c.Resources.Limits.Memory().String() != "256Mi" || len(pod.ImagePullSecrets) != 2 || pod.ImagePullSecrets[1].Name != "b" {
		t.Errorf("the options are not in the pod: %+v", pod)
	}
}
