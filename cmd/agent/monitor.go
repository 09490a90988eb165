package main

import "github.com/spf13/cobra"

func newMonitorCommand() *cobra.Command { return &cobra.Command{Use: "monitor"} }
