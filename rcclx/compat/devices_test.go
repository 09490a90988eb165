package compat

import "testing"

func TestModelOfDeviceID(t *testing.T) {
	for id, want := range map[string]string{"74a1": "MI300X", "0x74A1": "MI300X", "75a3": "MI355X", "ffff": "", "": "",
		"0x": "", "MI300X": "", "74a1h": "", "10000000000074a1": "", "1000000000000000000074a1": ""} {
		if got := ModelOfDeviceID(id); got != want {
			t.Errorf("%q is %q, expected %q", id, got, want)
		}
	}
}

func FuzzModelOfDeviceID(f *testing.F) {
	f.Add("74a1")
	f.Add("0x75A3")
	f.Fuzz(func(t *testing.T, id string) {
		if got := ModelOfDeviceID(id); got != "" && got != ModelOfDeviceID("0x"+id) &&
			id[:2] != "0x" && id[:2] != "0X" {
			t.Errorf("%q is %q only without 0x", id, got)
		}
	})
}
