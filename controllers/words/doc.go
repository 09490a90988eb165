// Package words makes the pieces of messages: lists of names, counts, sentences, and texts that fit where they are
// stored. It knows neither groups nor nodes, and imports only units of this module.
package words
