// Package accept says whether a CommGroup's spec can be carried out on its members.
package accept
