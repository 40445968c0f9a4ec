"""Tables as spreadsheets, pandas, R and Weka write them: each is read as a person would, or refused with the option."""
