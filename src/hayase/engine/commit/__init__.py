"""The commit of a batch: its manifest, the ledger of all lanes, the tables that manifests fill, housekeeping."""
